//! The broker on a file system of the real kernel that fills up, turns read-only, or stands on a device that fails.
//!
//! Each test mounts an ext4 image of its own over a loop device, which needs root; where that is not allowed it says so
//! and ends, and `./test` counts it as skipped. A power cut is what the image holds while it is mounted: what the file system had not
//! written to its device yet is not in it. What is checked is always the same: whatever was acknowledged is there afterwards, whole, once, in order.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Node, PATIENCE, receive, soon, until};
use pharos_client::{ConnectOptions, Connection, ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_wire::proto::MessageIdData;

/// Bytes of a message: enough to fill a small device soon.
const MESSAGE_BYTES: usize = 100_000;

/// Messages under way at once.
const WINDOW: usize = 8;

fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    command
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Says that a test could not be run here. `./test` names a file for that, in which one line is one test.
fn not_run(why: &str) {
    eprintln!("not run: {why}");
    let Some(path) = std::env::var_os("TESTS_NOT_RUN") else {
        return;
    };
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    std::io::Write::write_all(&mut file.unwrap(), line.as_bytes()).unwrap();
}

/// A mounted ext4 image. Unmounted when dropped.
struct Device {
    image: PathBuf,
    mounted: PathBuf,
    _dir: tempfile::TempDir,
}

impl Device {
    /// Mounts a fresh one; `None`, with a word about it, where that is not allowed. `under`: where the image lies.
    fn mount(under: Option<&Path>, bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = under.unwrap_or(dir.path()).join("image");
        let mounted = dir.path().join("mounted");
        std::fs::create_dir(&mounted).unwrap();
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let device = Self {
            image,
            mounted,
            _dir: dir,
        };
        let made = run("mkfs.ext4", &["-q", "-F", device.image.to_str()?]) && device.mount_again();
        if !made {
            not_run("mounting an image needs root, mkfs.ext4 and a loop device");
        }
        made.then_some(device)
    }

    fn mount_again(&self) -> bool {
        let options = ["-o", "loop,errors=remount-ro"];
        let paths = [self.image.to_str().unwrap(), self.mounted.to_str().unwrap()];
        run("mount", &[&options[..], &paths[..]].concat())
    }

    /// As a machine finds its device after a power cut: with what had reached it by now, and nothing that was only in memory.
    async fn power_cut(&self) {
        let cut = self.image.with_extension("cut");
        let paths = [self.image.to_str().unwrap(), cut.to_str().unwrap()];
        assert!(run("cp", &[&["--sparse=always"][..], &paths].concat()));
        let path = self.mounted.to_str().unwrap();
        until("the device is unmounted", || run("umount", &[path]).then_some(())).await;
        std::fs::rename(&cut, &self.image).unwrap();
        run("fsck.ext4", &["-y", self.image.to_str().unwrap()]);
        assert!(self.mount_again(), "mounted again");
    }

    /// Off and on again, as after a clean restart of the machine.
    async fn remount(&self) {
        let path = self.mounted.to_str().unwrap();
        until("the device is unmounted", || run("umount", &[path]).then_some(())).await;
        // What the file system itself must repair.
        run("fsck.ext4", &["-y", self.image.to_str().unwrap()]);
        assert!(self.mount_again(), "mounted again");
    }

    fn data(&self) -> PathBuf {
        self.mounted.join("data")
    }

    /// The name of its block device, as in `/sys/fs/ext4`.
    fn block_device(&self) -> String {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let mine = |line: &&str| line.split(' ').nth(1) == self.mounted.to_str();
        let line = mounts.lines().find(mine).unwrap();
        line.split(' ')
            .next()
            .unwrap()
            .trim_start_matches("/dev/")
            .to_owned()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        run("umount", &["-l", self.mounted.to_str().unwrap()]);
    }
}

fn text(number: u32) -> String {
    let mut text = format!("{number} ");
    while text.len() < MESSAGE_BYTES {
        text.push_str(&format!(
            "{} ",
            number
                .wrapping_mul(2_654_435_761)
                .rotate_left(text.len() as u32 % 32)
        ));
    }
    text
}

/// Publishes numbers from `*next` on until one is refused or `count` are acknowledged; adds those with a receipt.
async fn publish(node: &Node, next: &mut u32, count: usize, acked: &mut Vec<u32>) -> Result<(), String> {
    let client = node.client().await;
    let producer = soon("a producer", client.producer("t", ProducerOptions::default())).await;
    let producer = producer.map_err(|error| error.to_string())?;
    let before = acked.len();
    let mut refused = None;
    while refused.is_none() && acked.len() - before < count {
        let mut sends = Vec::new();
        for _ in 0..WINDOW {
            match producer.begin_send(OutgoingMessage::new(text(*next))).await {
                Ok(send) => sends.push((*next, send)),
                Err(error) => refused = Some(error.to_string()),
            }
            *next += 1;
        }
        for (number, send) in sends {
            match soon("an answer to SEND", send.receipt()).await {
                Ok(_) => acked.push(number),
                Err(error) => refused = Some(error.to_string()),
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Everything acknowledged is there: whole, once, in order. What was refused may be there as well.
async fn expect_all(node: &Node, acked: &[u32]) {
    let client = node.client().await;
    let mut consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s").from_earliest())
        .await
        .unwrap();
    let mut last = None;
    for number in acked {
        loop {
            let message = receive(&mut consumer).await;
            let found: u32 = message.text().split(' ').next().unwrap().parse().unwrap();
            assert!(last < Some(found), "{found} after {last:?}");
            assert!(found <= *number, "{number} was acknowledged and is missing");
            assert!(message.text() == text(found), "{found} came back damaged");
            consumer.ack(&message.id).await.unwrap();
            last = Some(found);
            if found == *number {
                break;
            }
        }
    }
    consumer.close().await.unwrap();
}

/// Sets retention so that nothing is trimmed before it is checked.
async fn keep_all(node: &Node) {
    let client = node.client().await;
    let options = ConsumerOptions::exclusive("s").from_earliest();
    client
        .subscribe("t", options)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_full_device_refuses_publishers_until_there_is_room_again() {
    let Some(device) = Device::mount(None, 700 << 20) else {
        return;
    };
    let ballast = device.mounted.join("ballast");
    assert!(run("fallocate", &["-l", "350M", ballast.to_str().unwrap()]));
    let mut node = Node::start(&device.data(), &[]);
    keep_all(&node).await;
    let (one, other) = (
        "/admin/v2/persistent/public/default/one",
        "/admin/v2/persistent/public/default/other",
    );
    for topic in [one, other] {
        node.order("PUT", topic, "");
    }
    let (mut next, mut acked) = (0, Vec::new());
    let refused = publish(&node, &mut next, usize::MAX, &mut acked)
        .await
        .unwrap_err();
    assert!(refused.contains("space"), "it says why: {refused}");
    // What an operator does then is answered, and what makes room is done.
    let (status, reason) = node.call("PUT", &format!("{one}/subscription/s"), "{}");
    assert!(status == 204 || status >= 500, "{status} {reason}");
    node.order("DELETE", other, "");
    let (status, reason) = node.call("GET", "/admin/v2/brokers/ready", "");
    assert!(status == 200 || reason.contains("space"), "{status} {reason}");
    node.assert_alive();
    assert!(acked.len() > 100, "only {} messages fitted", acked.len());
    // What is there can be read while the device is full.
    expect_all(&node, &acked[..50]).await;

    std::fs::remove_file(&ballast).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while let Err(refused) = publish(&node, &mut next, 100, &mut acked).await {
        assert!(
            std::time::Instant::now() < deadline,
            "there is room again, but: {refused}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    expect_all(&node, &acked[50..]).await;
    node.kill();
    device.power_cut().await;
    let node = Node::start(&device.data(), &[]);
    publish(&node, &mut next, 20, &mut acked).await.unwrap();
    let new = acked.len() - 20;
    expect_all(&node, &acked[new..]).await;
}

#[tokio::test]
async fn a_device_that_turns_read_only_loses_nothing() {
    let Some(device) = Device::mount(None, 700 << 20) else {
        return;
    };
    let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", device.block_device());
    if !Path::new(&trigger).exists() {
        not_run("this kernel cannot be told to report an ext4 error");
        return;
    }
    let mut node = Node::start(&device.data(), &[]);
    keep_all(&node).await;
    let (mut next, mut acked) = (0, Vec::new());
    publish(&node, &mut next, 200, &mut acked).await.unwrap();
    std::fs::write(&trigger, "a test\n").unwrap();
    let refused = publish(&node, &mut next, usize::MAX, &mut acked)
        .await
        .unwrap_err();
    eprintln!("refused: {refused}");
    node.assert_alive();
    node.kill();
    device.power_cut().await;
    let node = Node::start(&device.data(), &[]);
    publish(&node, &mut next, 20, &mut acked).await.unwrap();
    expect_all(&node, &acked).await;
}

#[tokio::test]
async fn a_failing_device_is_final_and_nothing_acknowledged_is_lost() {
    // The image lies on a file system too small for it: the kernel finds out when it writes, and answers with errors.
    let small = tempfile::tempdir().unwrap();
    let path = small.path().to_str().unwrap();
    if !run("mount", &["-t", "tmpfs", "-o", "size=200m", "none", path]) {
        not_run("mounting needs root");
        return;
    }
    let small = Device {
        image: PathBuf::new(),
        mounted: small.path().to_owned(),
        _dir: small,
    };
    let Some(device) = Device::mount(Some(&small.mounted), 1 << 30) else {
        return;
    };
    let mut node = Node::start(&device.data(), &[]);
    keep_all(&node).await;
    let (mut next, mut acked) = (0, Vec::new());
    let refused = publish(&node, &mut next, 5000, &mut acked).await.unwrap_err();
    eprintln!("refused: {refused}");
    node.assert_alive();
    // Final: nothing is acknowledged any more, to any client.
    let settled = acked.len();
    publish(&node, &mut next, 1, &mut acked).await.unwrap_err();
    assert_eq!(acked.len(), settled, "acknowledged after the device failed");
    node.kill();
    let grow = ["-o", "remount,size=1500m", small.mounted.to_str().unwrap()];
    assert!(run("mount", &grow));
    device.remount().await;
    let node = Node::start(&device.data(), &[]);
    expect_all(&node, &acked).await;
    publish(&node, &mut next, 20, &mut acked).await.unwrap();
}

/// A file system on which every write waits. It goes on when this is dropped.
struct Frozen<'a>(&'a Device);

impl<'a> Frozen<'a> {
    /// `None`, with a word about it, where there is no `fsfreeze`.
    fn freeze(device: &'a Device) -> Option<Self> {
        let frozen = run("fsfreeze", &["-f", device.mounted.to_str()?]);
        if !frozen {
            not_run("this system cannot freeze a file system");
        }
        frozen.then_some(Self(device))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        run("fsfreeze", &["-u", self.0.mounted.to_str().unwrap()]);
    }
}

/// Value of the count once it has not grown for a while.
async fn at_rest(count: &AtomicUsize) -> usize {
    let (mut seen, mut same) = (0, 0);
    while seen == 0 || same < 20 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let now = count.load(Ordering::Relaxed);
        same = if now == seen { same + 1 } else { 0 };
        seen = now;
    }
    seen
}

#[tokio::test]
async fn a_stalled_device_holds_back_its_publisher_and_no_other() {
    const SENDS: u32 = 1200;
    let Some(device) = Device::mount(None, 700 << 20) else {
        return;
    };
    let node = Node::start(&device.data(), &[]);
    keep_all(&node).await;
    let client = node.client().await;
    let other = client
        .producer("other", ProducerOptions::default())
        .await
        .unwrap();
    for number in 0..50 {
        soon("a receipt", other.send(text(number))).await.unwrap();
    }
    let producer = client_of_its_own(&node).await;
    let before = node.resident_bytes();
    let Some(frozen) = Frozen::freeze(&device) else {
        return;
    };

    // It sends as fast as the socket takes it; nothing can be acknowledged.
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let sending = tokio::spawn(async move {
        let mut sends = Vec::new();
        for number in 0..SENDS {
            let send = producer.begin_send(OutgoingMessage::new(text(number))).await;
            sends.push(send.unwrap());
            counted.fetch_add(1, Ordering::Relaxed);
        }
        (producer, sends)
    });
    let held_at = at_rest(&sent).await;
    // A broker that goes on reading takes all of it, 120 MB. One that does not has 32 MiB, and the socket a few.
    assert!(held_at < 800, "{held_at} messages were taken");
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 80 << 20, "the broker has grown by {grown} bytes");

    // What is in memory is read as ever, by a consumer that comes now.
    let earliest = MessageIdData {
        ledger_id: u64::MAX,
        entry_id: u64::MAX,
        ..MessageIdData::default()
    };
    let reader = ConsumerOptions::exclusive("reader").non_durable(earliest);
    let mut reader = soon("a reader", client.subscribe("other", reader.from_earliest()))
        .await
        .unwrap();
    for number in 0..50 {
        assert_eq!(receive(&mut reader).await.text(), text(number));
    }
    assert_eq!(sent.load(Ordering::Relaxed), held_at, "still held back");

    drop(frozen);
    let (producer, sends) = sending.await.unwrap();
    let mut last = None;
    for send in sends {
        let receipt = soon("a receipt", send.receipt()).await.unwrap();
        let place = (receipt.message_id.ledger_id, receipt.message_id.entry_id);
        assert!(last < Some(place), "{place:?} after {last:?}");
        last = Some(place);
    }
    soon("a receipt as ever", producer.send(text(SENDS)))
        .await
        .unwrap();
    expect_all(&node, &(0..=SENDS).collect::<Vec<_>>()).await;
}

/// A producer of `t` that has its connection for itself and queues next to nothing itself.
async fn client_of_its_own(node: &Node) -> pharos_client::Producer {
    let options = ConnectOptions {
        write_queue: 8,
        ..ConnectOptions::default()
    };
    let connecting = Connection::connect(&node.pulsar, options);
    let client = soon("connecting", connecting).await.unwrap();
    let producer = client.producer("t", ProducerOptions::default());
    soon("a producer", producer).await.unwrap()
}
