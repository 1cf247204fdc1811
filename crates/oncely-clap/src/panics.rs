//! Panics: every one becomes an envelope. What a handler's panic did is unknown, and the ledger says so.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::print::{self, Form};
use crate::reply::Reply;
use crate::surroundings::Process;

/// Whether a handler is acting in this process, or has acted and the answer is not told yet.
static ACTING: AtomicBool = AtomicBool::new(false);

/// A handler is about to act.
pub(crate) fn acting() {
    ACTING.store(true, Ordering::SeqCst);
}

/// The caller has been told how it ended.
pub(crate) fn told() {
    ACTING.store(false, Ordering::SeqCst);
}

/// The reply to a panic that was caught outside of a handler.
pub(crate) fn reply(panic: &(dyn Any + Send)) -> Reply {
    reply_to(&message_of(panic))
}

fn reply_to(message: &str) -> Reply {
    if ACTING.load(Ordering::SeqCst) {
        Reply::of_panic_while_acting(message)
    } else {
        Reply::of_panic(message)
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Puts a hook before the one that is there. Where a panic unwinds it is caught further up, and its envelope is printed
/// there, once; a program that aborts on panic has only the hook to print it.
pub(crate) fn install_hook(form: Form) {
    if !cfg!(panic = "abort") {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        before(info);
        if form == Form::Json {
            // The process ends here; nobody could be told of a failure.
            let _ = print::json(&Process, &reply_to(&message_of(info.payload())));
        }
    }));
}
