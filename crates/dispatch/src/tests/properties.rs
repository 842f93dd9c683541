//! Random worlds of each kind. A failure prints the seed that makes it again.

use super::model::{Keys, Kind, World};

const WORLDS: u64 = 30;
const STEPS: u64 = 250;

fn run(kind: Kind) {
    for seed in 0..WORLDS {
        let result = std::panic::catch_unwind(|| {
            let mut world = World::new(kind, seed.wrapping_mul(0x1234_5677));
            for _ in 0..STEPS {
                world.step();
            }
            world.settle();
        });
        assert!(result.is_ok(), "{kind:?} fails with seed {seed}");
    }
}

const PLAIN: Kind = Kind {
    key_shared: None,
    delays: false,
    chunks: false,
    resets: true,
};

#[test]
fn shared() {
    run(PLAIN);
}

#[test]
fn shared_with_delays() {
    run(Kind {
        delays: true,
        ..PLAIN
    });
}

#[test]
fn shared_with_chunks() {
    run(Kind {
        chunks: true,
        ..PLAIN
    });
}

#[test]
fn key_shared_on_a_ring() {
    run(Kind {
        key_shared: Some(Keys::Ring),
        ..PLAIN
    });
}

#[test]
fn key_shared_on_a_ring_with_delays() {
    run(Kind {
        key_shared: Some(Keys::Ring),
        delays: true,
        ..PLAIN
    });
}

#[test]
fn key_shared_by_ranges() {
    run(Kind {
        key_shared: Some(Keys::Ranges),
        ..PLAIN
    });
}

#[test]
fn key_shared_sticky() {
    run(Kind {
        key_shared: Some(Keys::Sticky),
        ..PLAIN
    });
}

#[test]
fn key_shared_out_of_order() {
    run(Kind {
        key_shared: Some(Keys::OutOfOrder),
        ..PLAIN
    });
}
