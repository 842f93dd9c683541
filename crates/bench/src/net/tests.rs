use std::net::TcpListener;

use super::*;
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
            .receive(&client, &mut scratch, 4098, &mut sink, &mut out)
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
    let (mut server, _) = listener.accept().expect("accepts");
    let (bytes, expected) = frames(6);
    for left in 0..bytes.len() {
        server.write_all(&bytes[left..]).expect("sends");
        let mut inbound = Inbound::starting_with(bytes[..left].to_vec());
        let (mut sink, mut out, mut scratch) = (Collect::default(), Vec::new(), Scratch::default());
        while sink.frames.len() < expected.len() {
            let received = inbound
                .receive(&client, &mut scratch, 4096, &mut sink, &mut out)
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
    let (mut server, _) = listener.accept().expect("accepts");
    client.set_nonblocking(true).expect("nonblocking");
    let mut outbound = Outbound::default();
    let pattern: Vec<u8> = (0..16_000_000u32).map(|i| (i % 251) as u8).collect();
    outbound.buf.extend_from_slice(&pattern);
    assert!(
        !outbound.flush(&client).expect("open"),
        "16 MB do not fit a socket"
    );
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        server.read_to_end(&mut got).expect("reads");
        got
    });
    while !outbound.flush(&client).expect("open") {
        std::thread::yield_now();
    }
    drop(client);
    assert_eq!(reader.join().expect("read"), pattern);
}
