//! `relay.toml`: what it takes, what it refuses and in which words, and that file and code agree.

mod relay_toml;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use duebox::config::{self, ConfigError, Loaded, Wake};
use secrecy::ExposeSecret;

/// A file with the keys that must be set, and room for more.
const LEAST: &str = "[postgres]\nurl = \"postgres://u@h/d\"\n[rabbitmq]\nurls = [\"amqp://h\"]\n\
                     [tier.now]\ntarget = { queue = \"q\" }\n";

/// Loads a text with these variables.
fn load_text(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
    let path = std::env::temp_dir().join(format!("duebox-{}.toml", uuid::Uuid::new_v4().simple()));
    std::fs::write(&path, text).unwrap();
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let loaded = config::load_with(&path, variables);
    std::fs::remove_file(&path).unwrap();
    loaded
}

/// The configuration of a text that is good.
#[track_caller]
fn good(text: &str, variables: &[(&str, &str)]) -> Loaded {
    load_text(text, variables).unwrap_or_else(|error| panic!("{error}"))
}

/// The report about a text that is not.
#[track_caller]
fn report(text: &str, variables: &[(&str, &str)]) -> String {
    let loaded = load_text(text, variables);
    assert!(loaded.is_err(), "taken, and should not be");
    config::report(&loaded)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The TOML files of a folder of fixtures; there is at least one.
#[track_caller]
fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/fixtures/config").join(folder);
    let files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files: Vec<PathBuf> = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    assert!(!files.is_empty(), "no fixture in {}", folder.display());
    files
}

#[test]
fn every_valid_fixture_loads_and_shows_as_toml() {
    for path in fixtures("valid").into_iter().chain([root().join("relay.toml")]) {
        let loaded = config::load_with(&path, []).unwrap_or_else(|error| panic!("{error}"));
        let shown = config::render(&loaded);
        let parsed = toml_edit::ImDocument::parse(shown.as_str());
        assert!(parsed.is_ok(), "{}: {}\n{shown}", path.display(), parsed.unwrap_err());
        // What is shown is the configuration: with its secrets put back it reads as the same.
        let again = good(&shown.replace(":***@", "@"), &[]);
        let values = |loaded: &Loaded| -> Vec<_> {
            loaded.entries.iter().map(|e| (e.section.clone(), e.key.clone(), e.value.clone())).collect()
        };
        assert_eq!(values(&again), values(&loaded), "{}", path.display());
        assert_eq!(again.config.tiers, loaded.config.tiers, "{}", path.display());
        assert_eq!(again.config.rules, loaded.config.rules, "{}", path.display());
    }
}

#[test]
fn every_invalid_fixture_is_refused_with_the_text_it_expects() {
    for path in fixtures("invalid") {
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = text.lines().next().unwrap().strip_prefix("# expect: ").unwrap();
        let loaded = config::load_with(&path, []);
        let report = config::report(&loaded);
        assert!(loaded.is_err(), "{} is taken", path.display());
        assert!(!expected.is_empty() && report.contains(expected), "{}: {report}", path.display());
        assert_eq!(report.lines().count(), 2, "one problem and its heading in {}: {report}", path.display());
    }
}

#[test]
fn all_problems_are_in_one_report_each_with_key_value_rule_and_origin() {
    let text = "[postgres]\n[rabbitmq]\nurls = [\"amqp://u:canary@h:0\"]\n[relay]\nworkers = 0\nbatch_rows = \"many\"\n\
                [tier.a]\ndelay = \"1.5h\"\ntarget = { queue = \"\" }\n[tier.b]\nkind = \"sometime\"\n[admin]\nlsten = 1\n";
    let report = report(text, &[("DUEBOX_OUTBOX__POLL", "30"), ("DUEBOX_RELAY__MAX_ATEMPTS", "3")]);
    for expected in [
        "11 problems",
        "postgres.url must be set, here or in DUEBOX_POSTGRES__URL",
        "rabbitmq.urls = [\"amqp://u:***@h:0\"] must have a port",
        "relay.workers = 0 must be a whole number from 1 to 64 (",
        ".toml:5)",
        "relay.batch_rows = \"many\" must be a whole number",
        "tier.a.delay = \"1.5h\" takes whole numbers only: write \"1h 30m\"",
        "tier.a.target.queue = \"\" must not be empty",
        "tier.b.kind = \"sometime\" must be",
        "tier.b.target must be set",
        "admin.lsten is not a key of [admin]; the nearest is 'listen'",
        "outbox.poll = \"30\" needs a unit: write \"30s\" for seconds or \"30ms\" for milliseconds (DUEBOX_OUTBOX__POLL)",
        "the nearest is DUEBOX_RELAY__MAX_ATTEMPTS (DUEBOX_RELAY__MAX_ATEMPTS)",
    ] {
        assert!(report.contains(expected), "no {expected:?} in:\n{report}");
    }
    assert!(!report.contains("canary"));
}

#[test]
fn the_environment_goes_before_the_file_and_texts_that_look_like_something_else_stay_texts() {
    for value in ["12345", "007", "true", "[a]", "1.5", "{a=b}"] {
        let loaded = good(LEAST, &[("DUEBOX_POSTGRES__SCHEMA", value), ("DUEBOX_TIER__NOW__TARGET__QUEUE", value)]);
        assert_eq!(loaded.config.postgres.schema, value);
        assert_eq!(loaded.config.tiers["now"].target, duebox::tier::Target::Queue(value.to_owned()));
    }
    let text =
        format!("{LEAST}[tier.order-30m]\ndelay = \"30m\"\ntarget = {{ queue = \"due\" }}\n[relay]\nworkers = 2\n");
    let variables = [
        ("DUEBOX_RELAY__WORKERS", "8"),
        ("DUEBOX_OUTBOX__WAKE", "poll"),
        ("DUEBOX_SWEEP__ENABLED", "false"),
        ("DUEBOX_TIER__ORDER_30M__DELAY", "2s"),
        ("DUEBOX_RABBITMQ__URLS", "[amqp://a, \"amqp://b:1\"]"),
        ("DUEBOX_CONFIG", "elsewhere"),
        ("DUEBOX_LOG", "debug"),
        ("DUEBOX_SERVICE_HOST", "10.0.0.1"),
        ("DUEBOX_PORT_9187_TCP", "tcp://10.0.0.1:9187"),
        ("HOME", "/"),
    ];
    let config = good(&text, &variables).config;
    assert_eq!((config.relay.workers, config.outbox.wake, config.sweep.enabled), (8, Wake::Poll, false));
    assert_eq!(config.postgres.pool_size, 11, "follows the workers");
    assert_eq!(config.tiers["order-30m"].delay(), Duration::from_secs(2));
    assert_eq!(
        config.rabbitmq.urls.iter().map(|u| (u.host.as_str(), u.port)).collect::<Vec<_>>(),
        [("a", 5672), ("b", 1)]
    );
}

#[test]
fn a_variable_that_is_no_setting_is_an_error() {
    for (name, expected) in [
        ("DUEBOX_WORKERS", "DUEBOX_WORKERS is no setting"),
        ("DUEBOX_RELAY__", "DUEBOX_RELAY__ is no setting"),
        ("DUEBOX_REALY__WORKERS", "realy is not a key of the file; the nearest is"),
        ("DUEBOX_RELAY__WORKER", "the nearest is DUEBOX_RELAY__WORKERS (DUEBOX_RELAY__WORKER)"),
        ("DUEBOX_TIER__NWO__DELAY", "names a tier that is not in the file; the nearest is 'now'"),
        ("DUEBOX_RELAY__WORKERS__X", "relay.workers = a table must be a whole number"),
        ("DUEBOX_POSTGRES__LISTEN_URL", "must not be empty"),
    ] {
        let report = report(LEAST, &[(name, "")]);
        assert!(report.contains(expected), "{name}: {report}");
    }
    let twice = report(LEAST, &[("DUEBOX_RELAY__WORKERS", "2"), ("DUEBOX_RELAY__workers", "3")]);
    assert!(twice.contains("DUEBOX_RELAY__workers contradicts another variable"), "{twice}");
    let no_text = report(LEAST, &[("DUEBOX_POSTGRES__URL", "postgres://u:\u{FFFD}canary@h/d")]);
    assert!(no_text.contains("DUEBOX_POSTGRES__URL must be UTF-8") && !no_text.contains("canary"), "{no_text}");
}

#[test]
fn no_secret_is_ever_printed() {
    let secrets = [
        ("DUEBOX_POSTGRES__URL", "postgres://u:canary@h/d?password=canary"),
        ("DUEBOX_POSTGRES__LISTEN_URL", "host=h password=canary"),
        ("DUEBOX_RABBITMQ__URLS", "[amqp://u:canary@h]"),
    ];
    let loaded = good(LEAST, &secrets);
    assert!(loaded.config.postgres.url.expose_secret().contains("canary"), "it is there");
    assert_eq!(loaded.config.rabbitmq.urls[0].password.expose_secret(), "canary");
    let shown = config::render(&loaded);
    assert!(shown.contains("url = \"postgres://u:***@h/d?password=***\"  # from DUEBOX_POSTGRES__URL"), "{shown}");
    let printed = format!("{loaded:?}{loaded:#?}{shown}{}", config::report(&Ok(loaded.clone())));
    assert!(!printed.contains("canary"), "{printed}");

    let broken = [
        "[postgres]\nurl = \"postgres://u:canary@h/d?sslmode=require\"\nlisten_url = \"mysql://u:canary@h\"",
        "[postgres]\npasswrod = \"canary\"\nurl = [\"canary\"]",
        "postgres = \"postgres://u:canary@h/d\"",
        "[postgres]\nurl = \"postgres://u:canary@h/d",
        "[postgres]\nurl = postgres://u:canary@h/d",
        "[postgres.url]\npassword = \"canary\"",
        "[rabbitmq]\nurls = [\"amqp://u:canary@h?x=1\", 5]",
        "[rabbitmq]\nurls = \"amqp://u:canary@h\"",
        "[rabbitmq]\nurl = \"amqp://u:canary@h\"",
    ];
    for text in broken {
        let error = load_text(text, &[("DUEBOX_POSTGRES", "canary"), ("DUEBOX_POSTGRES__ULR", "canary")]).unwrap_err();
        let printed = format!("{error}{error:?}") + &config::report(&Err(error));
        assert!(!printed.contains("canary"), "{printed}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let missing = Path::new("/nowhere/relay.toml");
    let error = config::load(Some(missing));
    assert!(config::report(&error).starts_with("cannot read /nowhere/relay.toml: "), "{}", config::report(&error));
}
