//! Placeholder while the house goes up.
