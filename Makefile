.PHONY: test demo

# All tests, on private servers that the test run starts and ends by itself.
test:
	.ci/install
	cargo test

# The whole way of a few orders, on private servers; see examples/demo/run.sh for its variables.
demo:
	.ci/install
	examples/demo/run.sh
