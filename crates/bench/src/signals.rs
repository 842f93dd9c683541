//! Stop flag, set by Ctrl-C or SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Starts watching for SIGINT and SIGTERM; the flag turns true at the first. From then on everything the tool started is
/// taken down in order; a second signal ends the process at once.
///
/// # Errors
/// The system starts no thread or tells of no signals.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&flag);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || runtime.block_on(watch(&told)))
        .context("cannot watch for signals")?;
    Ok(flag)
}

async fn watch(told: &AtomicBool) {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if told.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    }
}
