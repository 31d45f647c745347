//! The rules about Rust code, as a table: where each holds, what breaks it, and a sample that does.

use super::code::{lines_with, modules};
use super::source::{Source, sources};

/// One rule.
struct Rule {
    promise: &'static str,
    /// Whether it is about this file.
    about: fn(&str) -> bool,
    /// What breaks it in such a file.
    breaches: fn(&Source) -> Vec<String>,
    /// A file that it is about, and lines that break it.
    broken: (&'static str, &'static [&'static str]),
    /// Lines that look alike and do not.
    kept: &'static str,
}

/// The pure files, and the only modules of the crate that they may know.
const PURE: [&str; 4] = ["message", "verdict", "backoff", "tier"];

/// The longest `main.rs`, and the longest other file, in lines without tests.
const LONGEST: (usize, usize) = (60, 300);

const RULES: &[Rule] = &[
    Rule {
        promise: "the Postgres side does not know the RabbitMQ side",
        about: |path| within(path, "outbox"),
        breaches: |source| knows(source, &["broker"]),
        broken: (
            "src/outbox/claim.rs",
            &["use crate::broker::link;", "use crate::{broker, tier};", "super::super::broker::x()"],
        ),
        kept: "use crate::relay::Broker; // crate::broker",
    },
    Rule {
        promise: "the RabbitMQ side does not know the Postgres side, and of the rules their port alone",
        about: |path| within(path, "broker"),
        breaches: |source| {
            let rest = source.text.replace("crate::rule::port::", "");
            knows(&Source { text: rest, path: source.path.clone() }, &["outbox", "rule"])
        },
        broken: ("src/broker.rs", &["use crate::outbox::Outbox;", "super::outbox::x()", "use crate::rule::Sweep;"]),
        kept: "use crate::relay::Outbox; use crate::rule::port::Source;",
    },
    Rule {
        promise: "the relay and the admin pages know neither side",
        about: |path| within(path, "relay") || within(path, "admin"),
        breaches: |source| knows(source, &["outbox", "broker", "rule", "app", "cli"]),
        broken: ("src/relay/desk.rs", &["use crate::outbox::Outbox;", "use super::super::broker::link;"]),
        kept: "use super::{Broker, Outbox};",
    },
    Rule {
        promise: "only outbox and rule name the Postgres driver",
        about: |path| !within(path, "outbox") && !within(path, "rule"),
        breaches: |source| words(source, &["tokio_postgres", "deadpool_postgres", "postgres_types"]),
        broken: ("src/app/build.rs", &["use deadpool_postgres::Pool;", "let x = tokio_postgres::NoTls;"]),
        kept: "let filter = \"tokio_postgres=warn\";",
    },
    Rule {
        promise: "only broker names lapin",
        about: |path| !within(path, "broker"),
        breaches: |source| words(source, &["lapin", "amq_protocol"]),
        broken: ("src/relay.rs", &["use lapin::Channel;"]),
        kept: "/// lapin logs bodies\nlet filter = \"lapin=error\";",
    },
    Rule {
        promise: "only app spawns, so every task has an owner",
        about: |path| !within(path, "app"),
        breaches: |source| words(source, &["spawn", "spawn_blocking", "spawn_local", "JoinSet"]),
        broken: ("src/outbox/listen.rs", &["tokio::spawn(connection);", "std::thread::spawn(work);", "JoinSet::new()"]),
        kept: "tokio::select! { _ = work => {} }",
    },
    Rule {
        promise: "pure files know only each other",
        about: is_pure,
        breaches: |source| {
            let known = modules(&source.path, &source.code());
            known.iter().filter(|name| !PURE.contains(&name.as_str())).map(|name| format!("crate::{name}")).collect()
        },
        broken: ("src/tier.rs", &["use crate::config::Tier;", "use super::relay::Fate;"]),
        kept: "use crate::message::Message; use crate::{tier, verdict::Verdict};",
    },
    Rule {
        promise: "pure files have no I/O, no clock, no log and do not wait",
        about: is_pure,
        breaches: |source| {
            let std = ["std::fs", "std::net", "std::io", "std::env", "std::process", "std::thread", "std::sync"];
            let clock =
                ["Instant", "SystemTime", "async", "await", "Future", "tokio", "tracing", "println!", "eprintln!"];
            words(source, &[std.as_slice(), clock.as_slice()].concat())
        },
        broken: (
            "src/verdict.rs",
            &["std::fs::read(x)", "Instant::now()", "SystemTime::now()", "async fn f() {}", "tracing::warn!(x)"],
        ),
        kept: "use std::time::Duration; // async",
    },
    Rule {
        promise: "nothing panics on purpose and nothing is unsafe",
        about: |_| true,
        breaches: |source| {
            let calls = [".unwrap()", ".expect(", ".unwrap_err()", ".expect_err("];
            let macros =
                ["panic!", "todo!", "unimplemented!", "unreachable!", "dbg!", "assert!", "assert_eq!", "unsafe"];
            words(source, &[calls.as_slice(), macros.as_slice()].concat())
        },
        broken: (
            "src/cli.rs",
            &["x.unwrap();", "x.expect(y);", "panic!()", "unsafe { x }", "todo!()", "unreachable!()"],
        ),
        kept: "x.unwrap_or(y); expect(x, 3)?; #![forbid(unsafe_code)]",
    },
    Rule {
        promise: "main.rs is short: all it does can be read at one look",
        about: |path| path == "src/main.rs",
        breaches: |source| longer(source, LONGEST.0),
        broken: (
            "src/main.rs",
            &[
                "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n.",
            ],
        ),
        kept: "fn main() {}",
    },
    Rule {
        promise: "a file is at most 300 lines without its tests",
        about: |_| true,
        breaches: |source| longer(source, LONGEST.1),
        broken: ("src/relay.rs", &[include_str!("../../../Cargo.lock")]),
        kept: "#[cfg(test)]\nmod tests {}",
    },
];

/// Whether a file belongs to the module of that name at the crate's top level.
fn within(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix("src/").and_then(|path| path.strip_prefix(module));
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn is_pure(path: &str) -> bool {
    PURE.iter().any(|module| within(path, module))
}

fn knows(source: &Source, others: &[&str]) -> Vec<String> {
    let known = modules(&source.path, &source.code());
    others.iter().filter(|other| known.contains(**other)).map(|other| format!("crate::{other}")).collect()
}

fn words(source: &Source, words: &[&str]) -> Vec<String> {
    let code = source.code();
    words
        .iter()
        .flat_map(|word| lines_with(&code, word).into_iter().map(move |line| format!("{line}: {word}")))
        .collect()
}

fn longer(source: &Source, longest: usize) -> Vec<String> {
    let lines = source.production().lines().count();
    if lines > longest { vec![format!("{lines} lines")] } else { Vec::new() }
}

#[test]
fn every_rule_holds() {
    let sources = sources("src", 40);
    let mut breaches = Vec::new();
    for rule in RULES {
        let about: Vec<&Source> = sources.iter().filter(|source| (rule.about)(&source.path)).collect();
        assert!(!about.is_empty(), "no file is left to hold: {}", rule.promise);
        for source in about {
            let found = (rule.breaches)(source);
            breaches.extend(found.iter().map(|what| format!("{}:{what}: {}", source.path, rule.promise)));
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn every_rule_is_broken_by_its_sample_and_by_nothing_else() {
    for rule in RULES {
        let (path, broken) = rule.broken;
        let source = |text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        assert!((rule.about)(path), "{path} is not the business of: {}", rule.promise);
        for text in broken {
            assert!(!(rule.breaches)(&source(text)).is_empty(), "{text:?} does not break: {}", rule.promise);
        }
        let found = (rule.breaches)(&source(rule.kept));
        assert!(found.is_empty(), "{:?} is said to break: {}: {found:?}", rule.kept, rule.promise);
    }
}

#[test]
fn every_pure_file_is_there() {
    let sources = sources("src", 40);
    for module in PURE {
        assert!(sources.iter().any(|source| within(&source.path, module)), "src/{module}.rs");
    }
}

#[test]
fn no_test_is_ignored_and_none_is_left_out() {
    let ignored = concat!("#[ig", "nore");
    let mut tests = 0;
    for source in sources("tests", 20).iter().chain(&sources("src", 40)) {
        let code = super::code::bare(&source.text);
        assert!(lines_with(&code, ignored).is_empty(), "{} has an ignored test", source.path);
        tests += lines_with(&code, "#[test]").len() + lines_with(&code, "#[tokio::test").len();
    }
    assert!(tests > 100, "only {tests} tests found");
    assert_eq!(lines_with(&format!("{ignored}]\nfn x() {{}}"), ignored), [1], "an ignored test is seen");
}
