//! fan_out
