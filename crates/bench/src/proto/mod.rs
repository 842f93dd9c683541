//! Pulsar protocol of the load tool, tuned for its own hot paths.
//!
//! A load tool shares the machine with the broker it measures, so each delivered message must cost next to nothing.
//! [`message`] reads the few numbers of a `MESSAGE` in place; [`ack`] writes `ACK` frames by hand. Everything rare
//! goes through `pharos-wire` in [`command`].

pub(crate) mod ack;
pub(crate) mod command;
pub(crate) mod fields;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod payload;
