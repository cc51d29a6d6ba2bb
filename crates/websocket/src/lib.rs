//! Placeholder while the house goes up.
#![no_std]
#![forbid(unsafe_code)]
