//! The house keeps its walls: the sources are read, and a broken rule is named with its line.
//!
//! Every rule is also tried on a sample that breaks it, so that no rule is green because it sees nothing.

mod code;
mod layout;
mod packages;
mod rules;
mod source;
mod sql_files;
