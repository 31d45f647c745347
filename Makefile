.PHONY: test demo matrix

# All tests, on private servers that the test run starts and ends by itself.
test:
	.ci/install
	cargo test

# The whole way of a few orders, on private servers; see examples/demo/run.sh for its variables.
demo:
	.ci/install
	examples/demo/run.sh

# The tests that depend on the servers' versions, against those of three Debians; see .ci/matrix.
matrix:
	.ci/install
	.ci/matrix
