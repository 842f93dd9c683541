//! Streams over real sockets: from one runtime to another, and refused ones.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use pharos_runtime::Shutdown;
use pharos_transport::{
    Admission, ConnectionsMax, Incoming, Listener, NoRoom, Place, Protocol, Read, ReadBuffer, ReadHalf,
    Stream,
};

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Runs on a thread and a runtime of its own.
fn elsewhere<T: Send + 'static, F: Future<Output = T>>(work: impl FnOnce() -> F + Send + 'static) -> T {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(work())
    };
    std::thread::spawn(run).join().unwrap()
}

/// Reads until the buffer has so many bytes.
async fn read(reading: &mut ReadHalf, buffer: &mut ReadBuffer, bytes: usize) {
    while buffer.as_slice().len() < bytes {
        poll_fn(|context| reading.poll_readable(context)).await.unwrap();
        match buffer.read(reading, None).await {
            Read::Some(filled) => buffer.handled(filled),
            Read::Nothing => {}
            end => panic!("{end:?}"),
        }
    }
}

#[test]
fn a_stream_goes_on_where_it_was_on_another_runtime() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut peer = connect(listener.local_address());
    let address = peer.local_addr().unwrap();
    peer.write_all(b"first").unwrap();
    let (detached, rest) = elsewhere(move || async move {
        let stream = listener
            .start()
            .unwrap()
            .accept()
            .await
            .establish()
            .await
            .unwrap();
        assert_eq!(stream.peer_address(), address);
        let (mut reading, writing) = stream.split();
        let mut buffer = ReadBuffer::default();
        read(&mut reading, &mut buffer, 5).await;
        assert_eq!(
            writing
                .write_now(&[IoSlice::new(b"on"), IoSlice::new(b"e")])
                .unwrap(),
            3
        );
        let detached = reading.reunite(writing).and_then(Stream::detach);
        (detached.unwrap(), buffer.into_rest())
    });
    peer.write_all(b"second").unwrap();
    elsewhere(move || async move {
        let stream = detached.attach().unwrap();
        assert_eq!(stream.peer_address(), address);
        let (mut reading, writing) = stream.split();
        let mut buffer = ReadBuffer::default();
        buffer.begin_with(rest);
        read(&mut reading, &mut buffer, 11).await;
        assert_eq!(buffer.as_slice(), b"firstsecond");
        writing.writable().await.unwrap();
        assert_eq!(writing.write_now(&[IoSlice::new(b"two")]).unwrap(), 3);
    });
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"onetwo");
}

/// Keeps what it admits.
#[derive(Default)]
struct Keeper(RefCell<Vec<(Stream, Place)>>);

impl Protocol for Keeper {
    async fn admit(&self, incoming: Incoming, place: Place) {
        let stream = incoming.establish().await.unwrap();
        self.0.borrow_mut().push((stream, place));
    }

    fn refusal(&self, why: NoRoom) -> Bytes {
        match why {
            NoRoom::Full(open) => format!("{open} are open").into(),
            NoRoom::Address(error) => error.to_string().into(),
        }
    }
}

#[tokio::test]
async fn who_finds_no_room_hears_why_until_another_one_leaves() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_address();
    let admission = Admission::new(2, ConnectionsMax::new(|| 2));
    let (keeper, shutdown) = (Keeper::default(), Shutdown::default());
    let running = admission.run(listener.start().unwrap(), &keeper, shutdown.token());
    let asking = async {
        let ask = tokio::task::spawn_blocking(move || {
            let inside = [connect(address), connect(address)];
            let mut heard = String::new();
            connect(address).read_to_string(&mut heard).unwrap();
            (inside, heard)
        });
        let (inside, heard) = ask.await.unwrap();
        assert_eq!(heard, "2 are open");
        assert_eq!((admission.accepted_count(), admission.refused_count()), (2, 1));
        let shards: Vec<usize> = keeper.0.borrow().iter().map(|(_, place)| place.shard()).collect();
        assert_eq!(shards, [0, 1]);
        keeper.0.borrow_mut().remove(0);
        let third = tokio::task::spawn_blocking(move || connect(address))
            .await
            .unwrap();
        while admission.accepted_count() < 3 {
            tokio::task::yield_now().await;
        }
        shutdown.trigger();
        drop((inside, third));
    };
    tokio::join!(running, asking);
}
