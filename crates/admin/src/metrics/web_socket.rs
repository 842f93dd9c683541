//! Metrics of WebSockets.

use pharos_websocket::WebSocketCounts;

use super::page::Page;

#[expect(clippy::cast_precision_loss, reason = "the format has floating point only")]
pub(super) fn write(page: &mut Page, cluster: &str, counts: &WebSocketCounts) {
    let of_cluster = || vec![("cluster", cluster.to_owned())];
    let sessions = "pharos_websocket_sessions";
    page.family(sessions, "Open WebSockets.", "gauge");
    for (kind, count) in [
        ("producer", counts.producers),
        ("consumer", counts.consumers),
        ("reader", counts.readers),
    ] {
        let mut labels = of_cluster();
        labels.push(("kind", kind.to_owned()));
        page.sample(sessions, &labels, count as f64);
    }
    for (name, help, count) in [
        (
            "pharos_websocket_messages_in_total",
            "Messages by WebSocket that were stored.",
            counts.messages_in,
        ),
        (
            "pharos_websocket_messages_out_total",
            "Messages that were written to WebSockets, those that came again too.",
            counts.messages_out,
        ),
        (
            "pharos_websocket_dead_letters_total",
            "Messages of consumers by WebSocket that went to a dead letter topic.",
            counts.dead_letters,
        ),
        (
            "pharos_websocket_stalled_sessions_total",
            "WebSockets closed because their client read nothing while max_unwritten_size was nearly used up.",
            counts.stalled,
        ),
    ] {
        page.single(name, help, "counter", &of_cluster(), count as f64);
    }
}
