//! A connection's turn of writing: what is due is queued, and what is queued goes to the socket until it is full.

use std::io;

/// Bytes written in one turn before another connection, or what came in meanwhile, gets its own. A quarter of it costs a
/// broadcast on few connections a third more CPU.
const TURN_BYTES: usize = 1 << 20;

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing is left that can be written now.
    Drained,
    /// There is more; others have their turn first.
    More,
    /// The socket is full.
    Blocked,
    /// The stream is finished.
    Broken,
}

/// Operations that a turn calls on its connection. None of them blocks.
pub trait Writer {
    /// Queues what is due, as far as there is room. Returns whether that was all.
    fn refill(&self) -> bool;

    /// True if nothing can be written now: the queue is empty, or waits for a payload that was set aside.
    fn is_idle(&self) -> bool;

    /// Writes once and returns how many bytes the socket took.
    ///
    /// # Errors
    /// As the socket says; `WouldBlock` when it is full.
    fn write(&self) -> io::Result<usize>;

    /// Writes what the stream has taken and the socket has not.
    ///
    /// # Errors
    /// As the socket says; `WouldBlock` when it is full.
    fn flush(&self) -> io::Result<()>;

    /// Something was written.
    fn on_written(&self);
}

/// Queues and writes until nothing is due, the socket is full, or others should have their turn.
pub fn write_turn(writer: &impl Writer) -> Turn {
    let mut turn_bytes = 0;
    loop {
        let is_all = writer.refill();
        if writer.is_idle() {
            return flush(writer);
        }
        match writer.write() {
            Ok(bytes) => {
                turn_bytes += bytes;
                writer.on_written();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Blocked,
            Err(_) => return Turn::Broken,
        }
        if is_all && writer.is_idle() {
            return flush(writer);
        }
        if turn_bytes >= TURN_BYTES {
            return Turn::More;
        }
    }
}

/// Nothing is left but what the stream has taken. As long as the socket has not, the connection has to wait for it: nothing
/// else would write it.
fn flush(writer: &impl Writer) -> Turn {
    match writer.flush() {
        Ok(()) => Turn::Drained,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Turn::Blocked,
        Err(_) => Turn::Broken,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Has `due` bytes, of which 1000 find room in the queue at a time; the socket takes `takes` of them and then nothing.
    struct Fake {
        due: Cell<usize>,
        queued: Cell<usize>,
        takes: Cell<usize>,
        is_broken: bool,
        /// True if bytes taken by the stream do not leave it.
        is_held: bool,
    }

    impl Writer for Fake {
        fn refill(&self) -> bool {
            let moved = self.due.get().min(1000 - self.queued.get());
            self.due.set(self.due.get() - moved);
            self.queued.set(self.queued.get() + moved);
            self.due.get() == 0
        }

        fn is_idle(&self) -> bool {
            self.queued.get() == 0
        }

        fn write(&self) -> io::Result<usize> {
            let bytes = self.queued.get().min(self.takes.get());
            self.queued.set(self.queued.get() - bytes);
            self.takes.set(self.takes.get() - bytes);
            match bytes {
                0 if self.is_broken => Err(io::ErrorKind::BrokenPipe.into()),
                0 => Err(io::ErrorKind::WouldBlock.into()),
                bytes => Ok(bytes),
            }
        }

        fn flush(&self) -> io::Result<()> {
            match self.is_held {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            }
        }

        fn on_written(&self) {}
    }

    fn turn(due: usize, takes: usize, is_broken: bool) -> (Turn, usize) {
        let fake = Fake {
            due: Cell::new(due),
            queued: Cell::new(0),
            takes: Cell::new(takes),
            is_broken,
            is_held: false,
        };
        (write_turn(&fake), fake.due.get() + fake.queued.get())
    }

    #[test]
    fn a_turn_ends_when_all_is_written_the_socket_is_full_or_others_wait() {
        assert_eq!(turn(0, 0, false), (Turn::Drained, 0));
        assert_eq!(turn(5000, usize::MAX, false), (Turn::Drained, 0));
        assert_eq!(turn(5000, 3500, false), (Turn::Blocked, 1500));
        assert_eq!(turn(5000, 3500, true), (Turn::Broken, 1500));
        let (how, left) = turn(2 * TURN_BYTES, usize::MAX, false);
        assert_eq!(how, Turn::More);
        assert!(left > TURN_BYTES - 1000);
    }

    #[test]
    fn what_the_stream_has_taken_and_the_socket_has_not_is_waited_for() {
        for due in [0, 5000] {
            let fake = Fake {
                due: Cell::new(due),
                queued: Cell::new(0),
                takes: Cell::new(usize::MAX),
                is_broken: false,
                is_held: true,
            };
            assert_eq!(write_turn(&fake), Turn::Blocked);
        }
    }
}
