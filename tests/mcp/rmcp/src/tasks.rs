//! Tools whose calls become tasks where the client knows of tasks: the answer is a handle, and the result is asked for.

use std::time::Duration;

use rmcp::model::{CallToolResponse, CallToolResult, ClientCapabilities, CreateTaskResult};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::answers::{said, text, typed, whole};
use crate::asking::{Round, asked, question};

/// What a task takes at least, so that somebody can ask for it while it runs.
const WHILE: Duration = Duration::from_millis(500);

fn done(words: impl Into<String>) -> Result<CallToolResult, TaskExit> {
    Ok(whole(json!({ "content": [text(words)], "isError": false }))?)
}

/// Asks whoever follows the task for a text.
async fn answered(task: &TaskContext, key: &str, words: &str) -> Result<Value, TaskExit> {
    task.request_input(key, typed(question(words, "answer"))?).await
}

async fn computed(task: TaskContext, time: Duration) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = task.cancelled() => Err(TaskExit::Cancelled),
        () = tokio::time::sleep(time) => done("computed"),
    }
}

/// What the tool of this name does as a task; `None` if it is none of these.
fn operation(
    tool: &str,
    arguments: &Value,
    round: &Round,
) -> Option<Box<dyn FnOnce(TaskContext) -> TaskFuture + Send>> {
    let time = Duration::from_secs(arguments["seconds"].as_u64().unwrap_or(0));
    let name = round.filled_in("user_name", "name").unwrap_or_default().to_owned();
    Some(match tool {
        "slow_compute" => Box::new(move |task| Box::pin(computed(task, time))),
        "failing_job" => Box::new(|_| {
            Box::pin(async {
                tokio::time::sleep(WHILE).await;
                Ok(whole(json!({ "content": [text("the job failed")], "isError": true }))?)
            })
        }),
        "protocol_error_job" => Box::new(|_| {
            Box::pin(async {
                tokio::time::sleep(WHILE).await;
                Err(ErrorData::internal_error("the server broke", None).into())
            })
        }),
        "confirm_delete" => Box::new(|task| {
            Box::pin(async move {
                answered(&task, "confirm", "Delete it?").await?;
                done("deleted")
            })
        }),
        "multi_input" => Box::new(|task| {
            Box::pin(async move {
                let both = (answered(&task, "first", "The first?"), answered(&task, "second", "The second?"));
                tokio::try_join!(both.0, both.1)?;
                done("both answered")
            })
        }),
        "test_tool_with_task" => Box::new(move |_| {
            Box::pin(async move {
                tokio::time::sleep(WHILE).await;
                done(format!("Hello, {name}!"))
            })
        }),
        _ => return None,
    })
}

/// What the tool of this name makes of a call; `None` if it is none of these.
pub async fn answer(
    tool: &str,
    arguments: &Value,
    round: &Round,
    (tasks, context): (&TaskManager, &RequestContext<RoleServer>),
) -> Option<Result<CallToolResponse, ErrorData>> {
    let operation = operation(tool, arguments, round)?;
    let knows_tasks = context.client_capabilities().is_some_and(|able| able.supports_tasks());
    let is_computed = tool == "slow_compute";
    if is_computed && (!knows_tasks || arguments["seconds"] == 0) {
        tokio::time::sleep(Duration::from_secs(arguments["seconds"].as_u64().unwrap_or(0))).await;
        return Some(said(&[text("computed")]));
    }
    if !knows_tasks {
        let needed = ClientCapabilities::builder().enable_tasks().build();
        return Some(Err(ErrorData::missing_required_client_capability(needed)));
    }
    if tool == "test_tool_with_task" && round.filled_in("user_name", "name").is_none() {
        let name = json!({ "user_name": question("What is your name?", "name") });
        return Some(asked(name, None).map(Into::into));
    }
    let task = tasks.spawn(TaskOptions::new(), operation);
    Some(Ok(CreateTaskResult::new(task).into()))
}
