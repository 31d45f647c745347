//! What single values become, and how far they may go.

use std::collections::BTreeMap;
use std::time::Duration;

use duebox::config::{self, Action, Mode};
use duebox::tier::{Argument, Kind};

use super::{LEAST, good, load_text, report, root};

#[test]
fn numbers_are_taken_up_to_their_bounds_and_not_beyond() {
    for (section, key, inside, outside) in [
        ("relay", "workers", ["1", "64"], ["0", "65"]),
        ("relay", "batch_rows", ["1", "10000"], ["0", "10001"]),
        ("relay", "batch_bytes", ["\"1KiB\"", "\"1GiB\""], ["\"1023B\"", "\"1073741825B\""]),
        ("relay", "batch_deadline", ["\"100ms\"", "\"5m\""], ["\"99ms\"", "\"300001ms\""]),
        ("relay", "max_attempts", ["1", "1000"], ["0", "1001"]),
        ("relay", "backoff_min", ["\"10ms\"", "\"5m\""], ["\"9ms\"", "\"3600001ms\""]),
        ("relay", "backoff_max", ["\"1s\"", "\"1d\""], ["\"9ms\"", "\"86400001ms\""]),
        ("relay", "max_message_bytes", ["\"1KiB\"", "\"512MiB\""], ["\"1023B\"", "\"536870913B\""]),
        ("relay", "shutdown_grace", ["\"100ms\"", "\"10m\""], ["\"99ms\"", "\"600001ms\""]),
        ("outbox", "poll", ["\"100ms\"", "\"1h\""], ["\"99ms\"", "\"3600001ms\""]),
        ("sweep", "every", ["\"100ms\"", "\"1d\""], ["\"99ms\"", "\"86400001ms\""]),
        ("sweep", "grace", ["\"0s\"", "\"1d\""], ["\"-1s\"", "\"86400001ms\""]),
        ("sweep", "batch", ["1", "10000"], ["0", "10001"]),
        ("postgres", "pool_size", ["5", "1000"], ["4", "1001"]),
        ("postgres", "connect_timeout", ["\"100ms\"", "\"5m\""], ["\"99ms\"", "\"300001ms\""]),
        ("postgres", "statement_timeout", ["\"100ms\"", "\"5m\""], ["\"99ms\"", "\"300001ms\""]),
        ("rabbitmq", "heartbeat", ["\"1s\"", "\"5m\""], ["\"999ms\"", "\"301s\""]),
        ("rabbitmq", "connect_timeout", ["\"100ms\"", "\"5m\""], ["\"99ms\"", "\"300001ms\""]),
        ("rabbitmq", "topology_check", ["\"100ms\"", "\"1h\""], ["\"99ms\"", "\"3600001ms\""]),
        ("tier.t", "delay", ["\"1ms\"", "\"3650d\""], ["\"0ms\"", "\"315360000001ms\""]),
        ("tier.t", "max_length", ["1", "1000000000"], ["0", "1000000001"]),
        ("tier.t", "late_tolerance", ["\"0s\"", "\"1m\""], ["\"-1s\"", "\"60001ms\""]),
    ] {
        let set = |value: &str| {
            let tier = if key == "delay" { "" } else { "delay = \"1m\"\n" };
            let text = format!("{LEAST}[tier.t]\n{tier}target = {{ queue = \"p\" }}\n");
            let head = format!("[{section}]\n");
            let line = format!("{head}{key} = {value}\n");
            if text.contains(&head) { text.replace(&head, &line) } else { format!("{text}{line}") }
        };
        for value in inside {
            good(&set(value), &[]);
        }
        for value in outside {
            let report = report(&set(value), &[]);
            assert!(report.contains(&format!("{section}.{key} = {value} must ")), "{report}");
        }
    }
}

#[test]
fn names_are_taken_up_to_their_longest() {
    let tier = |name: &str, queue: &str| {
        format!("{LEAST}[tier.{name}]\ndelay = \"3650d\"\ntarget = {{ queue = \"{queue}\" }}\n")
    };
    let loaded = good(&tier(&"t".repeat(228), &"q".repeat(255)), &[]);
    let Kind::Queue { queue, .. } = &loaded.config.tiers[&"t".repeat(228)].kind else { panic!("no delay queue") };
    assert_eq!(queue.name.len(), 255);
    assert!(report(&tier(&"t".repeat(229), "q"), &[]).contains("a name of 1 to 228"));
    assert!(report(&tier("t", &"q".repeat(256)), &[]).contains("at most 255 bytes long, and this is 256"));
    good(LEAST, &[("DUEBOX_POSTGRES__SCHEMA", &"s".repeat(50))]);
    assert!(report(LEAST, &[("DUEBOX_POSTGRES__SCHEMA", &"s".repeat(51))]).contains("at most 50 bytes"));
}

#[test]
fn a_delay_queue_has_the_arguments_that_lose_nothing() {
    let text = format!(
        "{LEAST}[tier.q]\ndelay = \"30m\"\nmax_length = 9\ntarget = {{ queue = \"due\" }}\n\
         [tier.c]\ndelay = \"2s\"\nqueue_type = \"classic\"\narguments = {{ owner = \"shop\" }}\n\
         target = {{ exchange = \"x\", routing_key = \"k\" }}\n"
    );
    let loaded = good(&text, &[]);
    let queue = |name: &str| match &loaded.config.tiers[name].kind {
        Kind::Queue { queue, .. } => queue.clone(),
        other @ (Kind::Direct | Kind::Hold { .. } | Kind::Plugin { .. }) => panic!("{name} is {other:?}"),
    };
    let text = |value: &str| Argument::Text(value.to_owned());
    let expect = |pairs: &[(&str, Argument)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    let quorum = queue("q");
    assert!(quorum.name.starts_with("duebox.q.1800000."), "{}", quorum.name);
    assert_eq!(quorum.hop, duebox::tier::Hop::queue(&quorum.name));
    let expected: BTreeMap<_, _> = expect(&[
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", Argument::Int(1_800_000)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("due")),
        ("x-max-length", Argument::Int(9)),
    ]);
    assert_eq!(quorum.arguments, expected);
    let expected: BTreeMap<_, _> = expect(&[
        ("x-queue-type", text("classic")),
        ("x-message-ttl", Argument::Int(2_000)),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-exchange", text("x")),
        ("x-dead-letter-routing-key", text("k")),
        ("owner", text("shop")),
    ]);
    assert_eq!(queue("c").arguments, expected);
}

#[test]
fn what_is_allowed_and_probably_not_meant_is_a_warning() {
    let text = format!(
        "{LEAST}[relay]\nshutdown_grace = \"10s\"\n[tier.t]\ndelay = \"8d\"\ntarget = {{ queue = \"p\" }}\n\
         [rule.r]\ntable = \"o\"\nid = \"id\"\nstatus = \"s\"\nfrom = [\"a\"]\nto = \"b\"\ndue = \"c\"\ntier = \"t\"\nafter = \"1d\"\n"
    );
    let loaded = load_text(&text, &[]);
    let report = config::report(&loaded);
    assert_eq!(loaded.unwrap().warnings.len(), 3, "{report}");
    for expected in ["shutdown_grace is not longer", "tier.t.delay is 8d", "rule.r.after is 1d"] {
        assert!(report.contains(expected), "{report}");
    }
    assert_eq!(good(LEAST, &[]).warnings, Vec::<String>::new());
    let unused = [("DUEBOX_OUTBOX__WAKE", "poll"), ("DUEBOX_POSTGRES__LISTEN_URL", "postgres://u@h/d")];
    assert!(good(LEAST, &unused).warnings[0].contains("listen_url is not used"));
    let rule = "[tier.t]\ndelay = \"1d\"\ntarget = { queue = \"p\" }\n[closer]\nenabled = true\n\
        [rule.r]\ntable = \"o\"\nid = \"id\"\nstatus = \"s\"\nfrom = [\"a\"]\nto = \"b\"\ndue = \"c\"\ntier = \"t\"\n";
    assert_eq!(good(&format!("{LEAST}{rule}"), &[]).warnings, Vec::<String>::new());
    let warnings = good(&format!("{LEAST}{rule}[sweep]\nenabled = false\n"), &[]).warnings;
    assert!(matches!(&warnings[..], [one] if one.contains("only a sweep comes back to it")), "{warnings:?}");
}

#[test]
fn a_rule_takes_its_missing_times_from_its_tier_and_from_the_sweep() {
    let path = root().join("tests/fixtures/config/valid/rules.toml");
    let loaded = config::load_with(&path, [("DUEBOX_SWEEP__EVERY".to_owned(), "7s".to_owned())]).unwrap();
    let rule = &loaded.config.rules["by-tier"];
    assert_eq!(
        (rule.after, rule.every, rule.grace),
        (Duration::from_secs(1800), Duration::from_secs(7), Duration::from_secs(60))
    );
    assert_eq!((rule.from.clone(), rule.action.to()), (vec!["0".to_owned(), "1".to_owned()], Some("9")));
    let rule = &loaded.config.rules["by-moment"];
    assert_eq!((rule.after, rule.every, rule.grace), (Duration::ZERO, Duration::from_secs(1), Duration::ZERO));
}

#[test]
fn what_closing_does_is_one_of_three() {
    let rules = config::load_with(&root().join("tests/fixtures/config/valid/rules.toml"), []).unwrap().config.rules;
    let Action::Update { to, set } = &rules["with-all"].action else { panic!("a function") };
    assert_eq!((to.as_deref(), set["Lock Version"].as_str()), (Some("closed"), "o.\"Lock Version\" + 1"));
    let since = rules["with-all"].not_before.unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!((since.as_secs(), rules["with-all"].mode), (1_796_079_600, Mode::Observe));
    assert!(matches!(&rules["reminder"].action, Action::Update { to: None, set } if set.len() == 1));
    assert_eq!(rules["function"].action, Action::Function("shop.close_order".into()));
    assert_eq!((rules["function"].mode, rules["function"].not_before), (Mode::Enforce, None));
}

#[test]
fn a_variable_with_a_mistyped_section_is_named_and_a_list_is_shown_how_to_be_written() {
    let said = report(LEAST, &[("DUEBOX_OUTBX__WAKE", "poll")]);
    assert!(said.contains("DUEBOX_OUTBX__WAKE") && said.contains("the nearest is DUEBOX_OUTBOX__"), "{said}");
    let said = report(LEAST, &[("DUEBOX_RABBITMQ__URLS", "amqp://a,amqp://b")]);
    assert!(said.contains(r#"several are written ["a", "b"]"#), "{said}");
}
