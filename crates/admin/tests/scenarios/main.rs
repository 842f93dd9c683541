//! Stories told to the REST API over real sockets, with a real broker in memory behind it.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use pharos_auth::Access;

mod callers;
mod door;
mod policies;
mod story;
mod table;

use door::{Door, ask};
use story::Story;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_story_goes_as_told() {
    let stories = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut told = 0;
    for entry in std::fs::read_dir(stories).unwrap() {
        let path = entry.unwrap().path();
        let story = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Each story has a broker of its own, so they can be read alone.
        let door = Door::open_with(name.starts_with("forced"), Access::everyone()).await;
        let telling = tokio::task::spawn_blocking(move || {
            Story::new(&name, &door).tell(&story);
            door
        });
        telling.await.unwrap().close().await;
        told += 1;
    }
    assert!(told >= 8, "{told} stories");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_door_closes_also_while_a_client_is_idle() {
    let door = Door::open().await;
    let address = door.address;
    let idle = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /status.html HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        stream
    })
    .await
    .unwrap();
    door.close().await;
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_refused() {
    let door = Door::open().await;
    let address = door.address;
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head =
            "PUT /admin/v2/tenants/big HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        first
    })
    .await
    .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

/// Connections that say nothing, and some that begin a request and never end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_house_lets_the_next_one_in() {
    let door = Door::open().await;
    let address = door.address;
    let answers = tokio::task::spawn_blocking(move || {
        let silent: Vec<TcpStream> = (0..1_100)
            .map(|number| {
                let mut stream = TcpStream::connect(address).unwrap();
                if number % 2 == 0 {
                    stream.write_all(b"GET /admin/v2/brokers/rea").unwrap();
                }
                stream
            })
            .collect();
        let answers = [(); 3].map(|()| ask(address, "GET", "/admin/v2/brokers/ready", "").0);
        drop(silent);
        answers
    })
    .await
    .unwrap();
    assert_eq!(answers, [200; 3]);
    door.close().await;
}
