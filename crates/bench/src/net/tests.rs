use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use pharos_client::TlsOptions;

use super::*;
use crate::access::Access;
use crate::proto::ack::{AckMode, write_ack, write_flow};
use crate::proto::message::Delivery;

#[derive(Default)]
struct Collect {
    frames: Vec<Vec<u8>>,
    heads: bool,
    rests: usize,
}

impl FrameSink for Collect {
    fn on_frame(&mut self, frame: &[u8], _out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.frames.push(frame.to_vec());
        Ok(())
    }

    fn on_head(&mut self, head: &[u8]) -> bool {
        self.heads && head.len() >= 10
    }

    fn on_rest(&mut self, _out: &mut Vec<u8>) {
        self.rests += 1;
    }
}

fn frames(count: u64) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut all = Vec::new();
    let mut each = Vec::new();
    for number in 0..count {
        let mut one = Vec::new();
        if number % 2 == 0 {
            write_flow(&mut one, number, 1000);
        } else {
            write_ack(
                &mut one,
                &Delivery {
                    ledger_id: number,
                    ..Delivery::default()
                },
                AckMode::Individual,
            );
        }
        all.extend_from_slice(&one);
        each.push(one);
    }
    (all, each)
}

#[test]
fn frames_survive_any_way_of_being_torn() {
    let (bytes, expected) = frames(7);
    for piece in 1..bytes.len() {
        let (mut inbound, mut sink, mut out) = (Inbound::default(), Collect::default(), Vec::new());
        let mut scratch = Scratch::default();
        for part in bytes.chunks(piece) {
            inbound
                .complete(&mut scratch, part, &mut sink, &mut out)
                .expect("frames are whole");
        }
        assert_eq!(sink.frames, expected, "in pieces of {piece}");
        assert_eq!(inbound.kept, 0);
        assert!(inbound.carry.is_empty(), "the buffer went back");
    }
}

#[test]
fn the_rest_of_a_frame_is_dropped_once_its_head_was_enough() {
    let (bytes, expected) = frames(5);
    for piece in 1..bytes.len() {
        let mut sink = Collect {
            heads: true,
            ..Collect::default()
        };
        let (mut inbound, mut out) = (Inbound::default(), Vec::new());
        let mut scratch = Scratch::default();
        for part in bytes.chunks(piece) {
            inbound
                .complete(&mut scratch, part, &mut sink, &mut out)
                .expect("frames are whole");
        }
        assert_eq!(
            sink.frames.len() + sink.rests,
            expected.len(),
            "in pieces of {piece}"
        );
        assert_eq!(inbound.skip, 0);
    }
}

#[test]
fn torn_frames_of_a_socket_are_put_together_in_buffers_that_are_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connects");
    let mut client = Socket::Plain(client);
    let (server, _) = listener.accept().expect("accepts");
    let large = |fill: u8, bytes: usize| {
        let mut frame = vec![fill; bytes];
        frame[..4].copy_from_slice(&(bytes as u32 - 4).to_be_bytes());
        frame
    };
    let mut expected = vec![large(7, 1 << 20), large(8, 5000), large(9, 100_000)];
    expected.extend(frames(2).1);
    let sent = expected.concat();
    let writer = std::thread::spawn(move || {
        let mut stream = &server;
        stream.write_all(&sent).expect("sends");
    });
    let (mut inbound, mut sink, mut out) = (Inbound::default(), Collect::default(), Vec::new());
    let mut scratch = Scratch::default();
    while sink.frames.len() < expected.len() {
        let received = inbound
            .receive(&mut client, &mut scratch, 4098, &mut sink, &mut out)
            .expect("frames");
        assert_ne!(received, Received::Closed);
    }
    writer.join().expect("wrote");
    assert!(sink.frames == expected);
    assert!((1..=SPARES_MAX).contains(&scratch.spare.len()));
}

#[test]
fn what_a_handshake_left_is_cut_first() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connects");
    let mut client = Socket::Plain(client);
    let (mut server, _) = listener.accept().expect("accepts");
    let (bytes, expected) = frames(6);
    for left in 0..bytes.len() {
        server.write_all(&bytes[left..]).expect("sends");
        let mut inbound = Inbound::starting_with(bytes[..left].to_vec());
        let (mut sink, mut out, mut scratch) = (Collect::default(), Vec::new(), Scratch::default());
        while sink.frames.len() < expected.len() {
            let received = inbound
                .receive(&mut client, &mut scratch, 4096, &mut sink, &mut out)
                .expect("frames");
            assert_ne!(received, Received::Closed);
        }
        assert_eq!(sink.frames, expected, "{left} bytes left");
    }
}

#[test]
fn what_a_full_socket_refuses_is_kept_and_sent_later() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connects");
    let mut client = Socket::Plain(client);
    let (mut server, _) = listener.accept().expect("accepts");
    client.stream().set_nonblocking(true).expect("nonblocking");
    let mut outbound = Outbound::default();
    let pattern: Vec<u8> = (0..16_000_000u32).map(|i| (i % 251) as u8).collect();
    outbound.buf.extend_from_slice(&pattern);
    assert!(
        !outbound.flush(&mut client).expect("open"),
        "16 MB do not fit a socket"
    );
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        server.read_to_end(&mut got).expect("reads");
        got
    });
    while !outbound.flush(&mut client).expect("open") {
        std::thread::yield_now();
    }
    drop(client);
    assert_eq!(reader.join().expect("read"), pattern);
}

/// A broker's end of a connection with TLS that sends all of this at once, and the client's.
fn over_tls(sent: Vec<u8>) -> (Socket, std::thread::JoinHandle<()>) {
    use pharos_client::rustls::{ServerConfig, ServerConnection, crypto, pki_types::PrivateKeyDer};
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("pulsar+ssl://{address}");
    let any_certificate = TlsOptions {
        allow_insecure_connection: true,
        ..TlsOptions::default()
    };
    let access = Access::by_tls(&url, &any_certificate);
    let connector = access.connector().expect("a connector");
    let stream = TcpStream::connect(address).expect("connects");
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        let mut tls = ServerConnection::new(config.into()).expect("TLS");
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).expect("shakes hands");
        }
        tls.writer().write_all(&sent).expect("encrypts");
        while tls.wants_write() {
            tls.write_tls(&mut stream).expect("sends");
        }
        // It stays open: its end would wake the client once more.
        let _ = stream.read(&mut [0; 1]);
    });
    stream.set_nonblocking(true).expect("nonblocking");
    (Socket::new(stream, connector.as_ref()).expect("TLS"), broker)
}

#[test]
fn a_burst_over_tls_is_read_to_its_end_one_read_for_each_event() {
    for count in (2500..12_000).step_by(500) {
        burst_over_tls(count);
    }
}

fn burst_over_tls(count: u64) {
    let (bytes, expected) = frames(count);
    let (mut client, broker) = over_tls(bytes);
    let mut poller = Poller::new().expect("an epoll set");
    poller.add(&client, 1, false).expect("added");
    let (mut inbound, mut sink, mut out) = (Inbound::default(), Collect::default(), Vec::new());
    let (mut scratch, mut ready) = (Scratch::default(), Vec::new());
    assert!(client.flush().expect("the handshake begins"));
    while sink.frames.len() < expected.len() {
        poller.wait(20_000_000_000, &mut ready).expect("waits");
        assert!(
            !ready.is_empty(),
            "{} frames came, and nothing wakes us",
            sink.frames.len()
        );
        // So that much comes between two looks.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let received = inbound.receive(&mut client, &mut scratch, 64 << 10, &mut sink, &mut out);
        assert_ne!(received.expect("frames"), Received::Closed);
    }
    assert!(sink.frames == expected);
    drop(client);
    broker.join().expect("ended");
}
