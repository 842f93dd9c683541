//! A process on one thread: its threads, tasks and clocks stand in for the real ones, and its driver decides who runs
//! next. So one seed gives one run.
//!
//! While a [`Simulated`] is entered, the doors of this crate lead here: [`crate::spawn_shard`] makes a *group* of tasks instead
//! of a thread, [`crate::spawn_local`] adds a task to the group of the task that spawns, [`crate::Pool`] runs its work in a
//! group of its own, and [`crate::clock`] says the time that [`Simulated::pass`] made. Nothing runs by itself.
//!
//! The tasks of a group run in the order in which they became ready, as on a real shard; which group is next is the driver's
//! choice. Timers are those of the surrounding tokio runtime, whose clock the driver moves along.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Id of a thread that a simulated process would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(usize);

thread_local! {
    static ENTERED: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
    /// Simulated nanoseconds since the first start of the machine.
    static NOW: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Wall clock at the start of the simulated machine, in milliseconds since 1970.
const WALL_MS_FIRST: u64 = 1_700_000_000_000;

/// Monotonic clock at that moment, in nanoseconds; 0 has a special meaning in some places.
const NANOS_FIRST: u64 = 1_000_000_000;

/// The simulated monotonic clock, if there is one on this thread.
pub(crate) fn now() -> Option<u64> {
    NOW.get()
}

/// The simulated wall clock, if there is one on this thread.
pub(crate) fn wall_ms() -> Option<u64> {
    NOW.get().map(|nanos| WALL_MS_FIRST + nanos / 1_000_000)
}

/// Adds a task to the group that runs now; gives it back when nothing is simulated here.
pub(crate) fn spawn<F: Future<Output = ()> + 'static>(future: F) -> Result<(), F> {
    match entered() {
        Some(inner) => {
            inner.add(inner.current.get(), Box::pin(future));
            Ok(())
        }
        None => Err(future),
    }
}

/// Makes a group with one task in place of a thread. When that ends, so do all others of the group.
pub(crate) fn spawn_group(future: impl Future<Output = ()> + 'static) {
    if let Some(inner) = entered() {
        let group = inner.group();
        let of_group = inner.clone();
        inner.add(
            group,
            Box::pin(async move {
                future.await;
                of_group.end(group);
            }),
        );
    }
}

/// True if this thread is a simulated process.
pub(crate) fn is_entered() -> bool {
    ENTERED.with_borrow(Option::is_some)
}

fn entered() -> Option<Rc<Inner>> {
    ENTERED.with_borrow(Clone::clone)
}

/// A simulated process. Dropping it is its death: all tasks are dropped where they stand.
#[derive(Debug)]
pub struct Simulated {
    inner: Rc<Inner>,
}

struct Inner {
    tasks: RefCell<Tasks>,
    ready: Arc<Mutex<Ready>>,
    current: Cell<GroupId>,
    /// Set while tasks are dropped at the end: what they would spawn then never runs.
    is_over: Cell<bool>,
}

#[derive(Default)]
struct Tasks {
    next: usize,
    groups: usize,
    /// `None` while it runs.
    tasks: BTreeMap<usize, (GroupId, Option<Task>)>,
}

/// Ready tasks by group, oldest first.
#[derive(Default)]
struct Ready {
    queues: Vec<VecDeque<usize>>,
    queued: std::collections::BTreeSet<usize>,
}

struct TaskWaker {
    task: usize,
    group: GroupId,
    ready: Arc<Mutex<Ready>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.push(self.group, self.task);
    }
}

impl Ready {
    fn push(&mut self, group: GroupId, task: usize) {
        if self.queued.insert(task)
            && let Some(queue) = self.queues.get_mut(group.0)
        {
            queue.push_back(task);
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Inner {
    fn group(&self) -> GroupId {
        let mut tasks = self.tasks.borrow_mut();
        let group = GroupId(tasks.groups);
        tasks.groups += 1;
        self.lock().queues.push(VecDeque::new());
        group
    }

    fn add(&self, group: GroupId, task: Task) {
        if self.is_over.get() {
            return;
        }
        let mut tasks = self.tasks.borrow_mut();
        let id = tasks.next;
        tasks.next += 1;
        tasks.tasks.insert(id, (group, Some(task)));
        self.lock().push(group, id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops every task of a group.
    fn end(&self, group: GroupId) {
        let gone: Vec<_> = {
            let mut tasks = self.tasks.borrow_mut();
            let of_group = tasks.tasks.extract_if(.., |_, (of, _)| *of == group);
            of_group.collect()
        };
        drop(gone);
    }
}

impl Simulated {
    /// A process that starts now. Time goes on from where an earlier one on this thread left it.
    #[must_use]
    pub fn start() -> Self {
        let inner = Rc::new(Inner {
            tasks: RefCell::default(),
            ready: Arc::default(),
            current: Cell::new(GroupId(0)),
            is_over: Cell::new(false),
        });
        inner.group();
        if NOW.get().is_none() {
            NOW.set(Some(NANOS_FIRST));
        }
        ENTERED.set(Some(inner.clone()));
        Self { inner }
    }

    /// Sets the clocks of a machine that starts for the first time.
    pub fn new_machine() {
        NOW.set(Some(NANOS_FIRST));
    }

    /// Lets time pass on both clocks. Timers are the driver's business: `tokio::time::advance` by as much.
    pub fn pass(&self, nanos: u64) {
        NOW.set(Some(NOW.get().unwrap_or(0) + nanos));
    }

    /// A new group, for tasks that stand for something outside, such as clients.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.inner.group()
    }

    /// Adds a task to a group.
    pub fn spawn(&self, group: GroupId, future: impl Future<Output = ()> + 'static) {
        self.inner.add(group, Box::pin(future));
    }

    /// The groups that have something to run.
    #[must_use]
    pub fn ready(&self) -> Vec<GroupId> {
        let ready = self.inner.lock();
        let filled = ready.queues.iter().enumerate();
        filled
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(index, _)| GroupId(index))
            .collect()
    }

    /// Runs the oldest ready task of a group until it waits. `false` when there is none.
    ///
    /// # Panics
    /// When the task does.
    pub fn run_one(&self, group: GroupId) -> bool {
        let Some(id) = self.take(group) else { return false };
        let taken = {
            let mut tasks = self.inner.tasks.borrow_mut();
            tasks.tasks.get_mut(&id).and_then(|(_, task)| task.take())
        };
        // It ended, or its group did, before its waker was called.
        let Some(mut task) = taken else { return true };
        let waker = Waker::from(Arc::new(TaskWaker {
            task: id,
            group,
            ready: self.inner.ready.clone(),
        }));
        let before = self.inner.current.replace(group);
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        self.inner.current.set(before);
        if polled.is_ready() {
            self.inner.tasks.borrow_mut().tasks.remove(&id);
        } else if let Some((_, place)) = self.inner.tasks.borrow_mut().tasks.get_mut(&id) {
            *place = Some(task);
            return true;
        }
        drop(task);
        true
    }

    fn take(&self, group: GroupId) -> Option<usize> {
        let mut ready = self.inner.lock();
        let id = ready.queues.get_mut(group.0)?.pop_front()?;
        ready.queued.remove(&id);
        Some(id)
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.inner.is_over.set(true);
        let tasks = std::mem::take(&mut self.inner.tasks.borrow_mut().tasks);
        if std::thread::panicking() {
            // A test fails; what tasks would say on their way would only hide why.
            std::mem::forget(tasks);
        }
        ENTERED.set(None);
    }
}

/// Resolves with `work`'s outcome, which runs in the caller's group.
pub(crate) fn run<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::sync::oneshot::Receiver<T> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let task = async move {
        // The caller waits no more: the work is done all the same.
        drop(answer.send(work.await));
    };
    drop(spawn(task));
    answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_run_when_told_and_in_their_order() {
        let process = Simulated::start();
        let told: Rc<RefCell<Vec<u32>>> = Rc::default();
        let (one, other) = (process.group(), process.group());
        for (group, number) in [(one, 1), (other, 10), (one, 2), (other, 20)] {
            let told = told.clone();
            process.spawn(group, async move { told.borrow_mut().push(number) });
        }
        assert_eq!(process.ready(), [one, other]);
        assert!(process.run_one(other) && process.run_one(one) && process.run_one(other));
        assert_eq!(*told.borrow(), [10, 1, 20]);
        assert!(!process.run_one(other) && process.run_one(one) && !process.run_one(one));
        drop(process);
        assert!(!is_entered());
    }

    #[test]
    fn a_thread_ends_with_all_its_tasks() {
        let process = Simulated::start();
        let alive = Arc::new(());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let held = Arc::downgrade(&alive);
        let handle = crate::spawn_shard("s".to_owned(), move || async move {
            crate::spawn_local(async move {
                let _alive = alive;
                std::future::pending::<()>().await;
            });
            drop(stopped.await);
        });
        let run = || while process.ready().into_iter().any(|group| process.run_one(group)) {};
        run();
        assert!(held.upgrade().is_some());
        stop.send(()).unwrap();
        run();
        assert!(held.upgrade().is_none());
        handle.unwrap().join().unwrap();
    }

    #[test]
    fn time_passes_when_told() {
        Simulated::new_machine();
        let process = Simulated::start();
        let (nanos, wall) = (crate::clock::now(), crate::clock::wall_ms());
        process.pass(5_000_000);
        assert_eq!(crate::clock::now().since(nanos), 5_000_000);
        assert_eq!(crate::clock::wall_ms(), wall + 5);
    }
}
