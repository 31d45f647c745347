//! What is wrong with a configuration: every problem at once, each with its key, value, rule and origin.

use std::fmt;
use std::path::PathBuf;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: the default of the code.
    Default,
    /// In the file, at this line (counted from 1) where it is known.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: Option<usize>,
    },
    /// In this environment variable.
    Env(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::Env(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `relay.workers`; empty for the file as a whole.
    pub key: String,
    /// The value as it was written; `None` when nothing was set or nothing may be shown.
    pub value: Option<String>,
    /// The rule that it breaks, continuing the sentence that the key begins.
    pub rule: String,
    /// Where it was set.
    pub origin: Origin,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        if !self.key.is_empty() {
            f.write_str(" ")?;
        }
        f.write_str(&self.rule)?;
        match &self.origin {
            Origin::Default => Ok(()),
            origin @ (Origin::File { .. } | Origin::Env(_)) => write!(f, " ({origin})"),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No file was named and none is at the usual places.
    #[error(
        "no configuration file: looked for {}; name one with --config or DUEBOX_CONFIG",
        searched.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
    )]
    NotFound {
        /// Where we looked.
        searched: Vec<PathBuf>,
    },
    /// The file is there but cannot be read, or was named and is not there.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file was read and is wrong.
    #[error("{}: {}{}", path.display(), count(problems.len()), listed(problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it.
        problems: Vec<Problem>,
    },
}

/// "1 problem", "2 problems".
fn count(n: usize) -> String {
    format!("{n} problem{}", if n == 1 { "" } else { "s" })
}

/// One line a problem.
fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
