//! A program that speaks to a broker by WebSocket.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Node, soon};

/// Lets a broker serve WebSockets.
pub(crate) const WEB_SOCKETS: &str = "--web-socket-service-enabled=true";

/// Headers of an upgrade, each ended by a new line.
pub(crate) const UPGRADE: &str = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n";

/// Its end of a WebSocket.
pub(crate) struct WebSocket {
    stream: WebSocketStream<TcpStream>,
}

impl WebSocket {
    /// Opens a session at `/ws/v2/` and this path, which must be admitted.
    pub(crate) async fn open(node: &Node, path: &str) -> Self {
        Self::try_open(node, path, UPGRADE).await.unwrap()
    }

    /// Opens a session with these headers, or returns the status and the body of the refusal.
    pub(crate) async fn try_open(node: &Node, path: &str, headers: &str) -> Result<Self, (u16, String)> {
        Self::try_open_at(node.admin_url().trim_start_matches("http://"), path, headers).await
    }

    /// Opens a session at `host:port`, or returns the status and the body of the refusal.
    pub(crate) async fn try_open_at(address: &str, path: &str, headers: &str) -> Result<Self, (u16, String)> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let headers = headers.replace('\n', "\r\n");
        let host = if headers.contains("Host: ") {
            ""
        } else {
            "Host: localhost\r\n"
        };
        let request = format!("GET /ws/v2/{path} HTTP/1.1\r\n{host}{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon("an answer to an upgrade", stream.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        if status != 101 {
            let length = head.lines().find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")
                    .map(str::to_owned)
            });
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            stream.read_exact(&mut body).await.unwrap();
            return Err((status, String::from_utf8(body).unwrap()));
        }
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        let stream = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
        Ok(Self { stream })
    }

    /// Says something.
    pub(crate) async fn say(&mut self, frame: &Value) {
        self.say_raw(Message::text(frame.to_string())).await;
    }

    /// Says anything.
    pub(crate) async fn say_raw(&mut self, frame: Message) {
        soon("saying something", self.stream.send(frame)).await.unwrap();
    }

    /// Next message, which must be JSON.
    pub(crate) async fn hear(&mut self) -> Value {
        match self.hear_raw().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Next message, including pings and close frames.
    pub(crate) async fn hear_raw(&mut self) -> Message {
        soon("a frame", self.stream.next()).await.unwrap().unwrap()
    }

    /// The code and the reason of the goodbye, whatever comes before it.
    pub(crate) async fn goodbye(&mut self) -> (u16, String) {
        loop {
            if let Message::Close(Some(close)) = self.hear_raw().await {
                return (close.code.into(), close.reason.to_string());
            }
        }
    }

    /// Checks that no message arrives, as far as that is visible: a question that is answered at once overtakes
    /// nothing.
    pub(crate) async fn hears_nothing_before(&mut self, question: &Value) -> Value {
        self.say(question).await;
        self.hear().await
    }

    /// Sends a message and hears that it is stored; its id.
    pub(crate) async fn produce(&mut self, text: &str) -> String {
        self.say(&json!({"payload": STANDARD.encode(text), "context": text}))
            .await;
        let answer = self.hear().await;
        assert_eq!(
            (&answer["result"], &answer["context"]),
            (&json!("ok"), &json!(text)),
            "{answer}"
        );
        answer["messageId"].as_str().unwrap().to_owned()
    }

    /// The text and the id of the next message.
    pub(crate) async fn receive(&mut self) -> (String, String) {
        let message = self.hear().await;
        (
            text_of(&message),
            message["messageId"].as_str().unwrap().to_owned(),
        )
    }

    /// Receives a message and acknowledges it.
    pub(crate) async fn consume(&mut self) -> String {
        let (text, id) = self.receive().await;
        self.say(&json!({"messageId": id})).await;
        text
    }

    /// Waits until the broker has closed as well.
    pub(crate) async fn close_quietly(mut self) {
        while let Some(Ok(_)) = soon("the end", self.stream.next()).await {}
    }

    /// Says goodbye, and waits until the broker has.
    pub(crate) async fn close(mut self) {
        self.stream.close(None).await.unwrap();
        while let Some(Ok(_)) = soon("a goodbye", self.stream.next()).await {}
    }
}

/// The payload of a message, as text.
pub(crate) fn text_of(message: &Value) -> String {
    let payload = message["payload"]
        .as_str()
        .unwrap_or_else(|| panic!("no message: {message}"));
    String::from_utf8(STANDARD.decode(payload).unwrap()).unwrap()
}
