//! duebox.
