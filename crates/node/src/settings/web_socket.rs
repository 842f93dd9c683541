//! Settings of WebSockets.

use std::time::Duration;

use super::{ByteSize, Limit, Names};

/// Whether there are any, and what each may have.
#[derive(Clone, Debug, PartialEq)]
pub struct WebSocketSettings {
    /// Whether they are served.
    pub service_enabled: bool,
    /// Sessions at once.
    pub max_sessions: u32,
    /// Largest text of a client.
    pub max_text_frame_size: ByteSize,
    /// How long a session may be without a word.
    pub session_idle_timeout: Duration,
    /// How often clients are pinged.
    pub ping_interval: Limit<Duration>,
    /// Web pages that may open some.
    pub allowed_origins: Names,
}

impl Default for WebSocketSettings {
    fn default() -> Self {
        Self {
            service_enabled: false,
            max_sessions: 1000,
            max_text_frame_size: ByteSize::mib(1),
            session_idle_timeout: Duration::from_secs(300),
            ping_interval: Limit::Unlimited,
            allowed_origins: Names::default(),
        }
    }
}

impl WebSocketSettings {
    /// What does not go together.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut expect = |holds: bool, sentence: &str| {
            if !holds {
                faults.push(sentence.to_owned());
            }
        };
        expect(
            !self.service_enabled || self.max_sessions > 0,
            "web_socket.max_sessions must not be 0; web_socket.service_enabled = false serves none",
        );
        expect(
            (1024..=64 << 20).contains(&self.max_text_frame_size.0),
            "web_socket.max_text_frame_size must be from 1KiB to 64MiB",
        );
        expect(
            !self.session_idle_timeout.is_zero(),
            "web_socket.session_idle_timeout must not be 0",
        );
        expect(
            self.ping_interval != Limit::At(Duration::ZERO),
            "web_socket.ping_interval must not be 0; unlimited never pings",
        );
        let is_origin = |origin: &String| {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' ']))
        };
        expect(
            self.allowed_origins.0.iter().all(is_origin),
            "web_socket.allowed_origins holds origins: https://app.example.com, without a path",
        );
        faults
    }
}
