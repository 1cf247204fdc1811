//! The chosen command with its handler, free of the handler's own types.

use std::pin::Pin;

use oncely::Effect;
use serde::Serialize;
use serde_json::Value;

use crate::answer::{Answer, Check, Failure, Fault};
use crate::handler::{AsyncHandler, AsyncQuery, Cx, Handler, Problems, Query};
use crate::plan::Planned;

/// The chosen command.
pub enum Job<'a, A> {
    /// A safe one.
    Query(&'a dyn ErasedQuery<A>),
    /// A safe one that is asynchronous.
    AsyncQuery(&'a dyn ErasedAsyncQuery<A>),
    /// One that is not safe.
    Handler(&'a dyn ErasedHandler<A>),
    /// One that is not safe and asynchronous.
    AsyncHandler(&'a dyn ErasedAsyncHandler<A>),
}

/// What a handler did, as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub(crate) effect: Effect,
    pub(crate) data: Option<Value>,
    pub(crate) reason: Option<String>,
}

/// How a handler ended.
pub type Ended = Result<Done, Fault>;

/// A future in a box.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A [`Query`] without its types.
pub trait ErasedQuery<A>: Send + Sync {
    /// See [`Query::validate`].
    fn validate(&self, app: &A, problems: &mut Problems);
    /// See [`Query::show`].
    fn show(&self, data: &Value) -> Option<String>;
    /// See [`Query::run`].
    fn run(&self, app: &A) -> Result<Value, Failure>;
}

/// An [`AsyncQuery`] without its types.
pub trait ErasedAsyncQuery<A>: Send + Sync {
    /// See [`AsyncQuery::validate`].
    fn validate(&self, app: &A, problems: &mut Problems);
    /// See [`AsyncQuery::show`].
    fn show(&self, data: &Value) -> Option<String>;
    /// See [`AsyncQuery::run`].
    fn run<'a>(&'a self, app: &'a A) -> Boxed<'a, Result<Value, Failure>>;
}

/// A [`Handler`] without its types.
pub trait ErasedHandler<A>: Send + Sync {
    /// See [`Handler::validate`].
    fn validate(&self, app: &A, problems: &mut Problems);
    /// See [`Handler::show`].
    fn show(&self, data: &Value) -> Option<String>;
    /// See [`Handler::run`].
    fn run(&self, cx: &Cx<A>) -> Ended;
    /// See [`Handler::plan`].
    fn plan(&self, app: &A) -> Planned;
    /// See [`Handler::check`].
    fn check(&self, cx: &Cx<A>) -> Check<Value>;
}

/// An [`AsyncHandler`] without its types.
pub trait ErasedAsyncHandler<A>: Send + Sync {
    /// See [`AsyncHandler::validate`].
    fn validate(&self, app: &A, problems: &mut Problems);
    /// See [`AsyncHandler::show`].
    fn show(&self, data: &Value) -> Option<String>;
    /// See [`AsyncHandler::run`].
    fn run<'a>(&'a self, cx: &'a Cx<A>) -> Boxed<'a, Ended>;
    /// See [`AsyncHandler::plan`].
    fn plan<'a>(&'a self, app: &'a A) -> Boxed<'a, Planned>;
    /// See [`AsyncHandler::check`].
    fn check<'a>(&'a self, cx: &'a Cx<A>) -> Boxed<'a, Check<Value>>;
}

/// What validation and display look like is the same for all four.
macro_rules! common {
    ($handler:ident) => {
        fn validate(&self, app: &A, problems: &mut Problems) {
            $handler::validate(self, app, problems);
        }

        fn show(&self, data: &Value) -> Option<String> {
            <T as $handler<A>>::show(data)
        }
    };
}

impl<A: Send + Sync + 'static, T: Query<A>> ErasedQuery<A> for T {
    common!(Query);

    fn run(&self, app: &A) -> Result<Value, Failure> {
        Query::run(self, app).and_then(|data| json(&data))
    }
}

impl<A: Send + Sync + 'static, T: AsyncQuery<A>> ErasedAsyncQuery<A> for T {
    common!(AsyncQuery);

    fn run<'a>(&'a self, app: &'a A) -> Boxed<'a, Result<Value, Failure>> {
        Box::pin(async move { AsyncQuery::run(self, app).await.and_then(|data| json(&data)) })
    }
}

impl<A: Send + Sync + 'static, T: Handler<A>> ErasedHandler<A> for T {
    common!(Handler);

    fn run(&self, cx: &Cx<A>) -> Ended {
        done(Handler::run(self, cx))
    }

    fn plan(&self, app: &A) -> Planned {
        Handler::plan(self, app)
    }

    fn check(&self, cx: &Cx<A>) -> Check<Value> {
        checked(Handler::check(self, cx))
    }
}

impl<A: Send + Sync + 'static, T: AsyncHandler<A>> ErasedAsyncHandler<A> for T {
    common!(AsyncHandler);

    fn run<'a>(&'a self, cx: &'a Cx<A>) -> Boxed<'a, Ended> {
        Box::pin(async move { done(AsyncHandler::run(self, cx).await) })
    }

    fn plan<'a>(&'a self, app: &'a A) -> Boxed<'a, Planned> {
        Box::pin(AsyncHandler::plan(self, app))
    }

    fn check<'a>(&'a self, cx: &'a Cx<A>) -> Boxed<'a, Check<Value>> {
        Box::pin(async move { checked(AsyncHandler::check(self, cx).await) })
    }
}

impl<A> Job<'_, A> {
    pub(crate) fn validate(&self, app: &A, problems: &mut Problems) {
        match self {
            Self::Query(job) => job.validate(app, problems),
            Self::AsyncQuery(job) => job.validate(app, problems),
            Self::Handler(job) => job.validate(app, problems),
            Self::AsyncHandler(job) => job.validate(app, problems),
        }
    }

    pub(crate) fn show(&self, data: &Value) -> Option<String> {
        match self {
            Self::Query(job) => job.show(data),
            Self::AsyncQuery(job) => job.show(data),
            Self::Handler(job) => job.show(data),
            Self::AsyncHandler(job) => job.show(data),
        }
    }
}

fn json(data: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(data)
        .map_err(|e| Failure::new("NO_JSON", format!("the answer has no JSON form: {e}")))
}

/// The effect happened even if what the handler answers has no JSON form: it is then remembered without it.
fn done<D: Serialize>(answer: Answer<D>) -> Ended {
    let changed = answer?;
    let (data, reason) = match changed.data.as_ref().map(serde_json::to_value).transpose() {
        Ok(data) => (data, changed.reason),
        Err(e) => (None, Some(format!("it happened, but its answer has no JSON form: {e}"))),
    };
    Ok(Done { effect: changed.effect, data, reason })
}

fn checked<D: Serialize>(check: Check<D>) -> Check<Value> {
    match check {
        Check::Holds(data) => match serde_json::to_value(&data) {
            Ok(data) => Check::Holds(data),
            Err(e) => Check::Unsure(format!("what the check found has no JSON form: {e}")),
        },
        Check::Missing => Check::Missing,
        Check::Unsure(why) => Check::Unsure(why),
    }
}
