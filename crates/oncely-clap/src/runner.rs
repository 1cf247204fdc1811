//! The runner: from the words of a command line to an exit code.

use std::ffi::OsString;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Command};
use oncely::{Call, Namespace};
use oncely_core::{Scope, ToolName};

use crate::commands::{App, Commands, Entry, Shape, Work};
use crate::declare::{Danger, KeyRule, Terms};
use crate::deliver::{Delivered, deliver, form_of, guess_form, printed, rendered};
use crate::flags::{self, Flags, MANIFEST};
use crate::guarded::Errand;
use crate::handler::Problems;
use crate::job::Job;
use crate::parse::{self, Read};
use crate::payload::payload;
use crate::print::Form;
use crate::reply::{Place, Reply, quoted};
use crate::surroundings::{Process, Surroundings, actor, store_address, text, variable_name};
use crate::{exit, manifest, panics};

/// Runs a program. [`main`](crate::main) is all that most programs need.
#[derive(Debug)]
pub struct Runner<A> {
    terms: Terms,
    namespace: Namespace,
    store: Option<String>,
    app: PhantomData<fn() -> A>,
}

impl<A: App> Default for Runner<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// A line that was read.
struct Line<A> {
    app: Arc<A>,
    matches: ArgMatches,
    path: Vec<String>,
    flags: Flags,
}

/// What a line leads to.
enum Led<A> {
    Ended(u8),
    ByHand(A),
}

impl<A: App> Runner<A> {
    /// Derived keys, and a ledger of the program's own.
    pub fn new() -> Self {
        let terms = Terms { keys: KeyRule::Derived, ignored: Vec::new() };
        Self { terms, namespace: Namespace::default(), store: None, app: PhantomData }
    }

    /// Refuses calls without a key, except of commands that declare [`derive_key`](crate::Declaration::derive_key).
    pub fn require_keys(mut self) -> Self {
        self.terms.keys = KeyRule::Required;
        self
    }

    /// Arguments (by their clap ids) that never matter to any intent: a verbosity, a colour.
    pub fn ignore<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.terms.ignored = arguments.map(str::to_owned).to_vec();
        self
    }

    /// The tenant; nothing crosses it.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// The ledger's address where neither `<APP>_STORE` nor `ONCELY_STORE` names one.
    pub fn default_store(mut self, address: impl Into<String>) -> Self {
        self.store = Some(address.into());
        self
    }

    /// The program as clap sees it, with the framework's flags: for completions and manual pages.
    pub fn command(&self) -> Command {
        flags::augment(A::command(), &A::shape(), self.terms.keys)
    }

    /// Reads the command line, runs what it asks for, prints the answer.
    pub fn run(self) -> ExitCode {
        self.run_or(|_| {
            Process.say("this command is marked by_hand, but the program has no code for it; nothing ran");
            ExitCode::from(exit::INTERNAL)
        })
    }

    /// The same for a program that still runs some of its commands itself: those that are marked `by_hand` come here.
    pub fn run_or(self, by_hand: impl FnOnce(A) -> ExitCode) -> ExitCode {
        let words: Vec<OsString> = std::env::args_os().collect();
        panics::install_hook(guess_form(&words, &Process));
        match self.lead(&words, &Process) {
            Led::Ended(code) => ExitCode::from(code),
            Led::ByHand(app) => by_hand(app),
        }
    }

    /// Runs a command line in other surroundings: for tests. Returns the exit code; `None` for a command that is marked
    /// `by_hand`.
    pub fn run_in(self, words: &[&str], here: &dyn Surroundings) -> Option<u8> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        match self.lead(&words, here) {
            Led::Ended(code) => Some(code),
            Led::ByHand(_) => None,
        }
    }

    fn lead(self, words: &[OsString], here: &dyn Surroundings) -> Led<A> {
        // What is half done is thrown away with the panic, so no broken state is seen.
        catch_unwind(AssertUnwindSafe(|| self.follow(words, here))).unwrap_or_else(|panic| {
            let reply = panics::reply(&*panic);
            let _ = deliver(here, A::command().get_name(), guess_form(words, here), &reply, None);
            Led::Ended(reply.exit)
        })
    }

    fn follow(self, words: &[OsString], here: &dyn Surroundings) -> Led<A> {
        let shape = A::shape();
        let mut command = flags::augment(A::command(), &shape, self.terms.keys);
        let line = match self.read(&mut command, &shape, words, here) {
            Ok(line) => line,
            Err(code) => return Led::Ended(code),
        };
        match shape.at(&command, &line.path) {
            Some(entry) if !matches!(entry.work, Work::ByHand) => {
                Led::Ended(self.handle(&command, entry, line, words, here))
            }
            // The line was just read, so nobody else holds it.
            _ => match Arc::try_unwrap(line.app) {
                Ok(app) => Led::ByHand(app),
                Err(_) => Led::Ended(exit::INTERNAL),
            },
        }
    }

    /// Reads the line; the error is the code to end with after everything was said.
    fn read(
        &self,
        command: &mut Command,
        shape: &Shape,
        words: &[OsString],
        here: &dyn Surroundings,
    ) -> Result<Line<A>, u8> {
        let wrong = match parse::read(command, words) {
            Read::Shown(shown) => {
                return Err(printed(here, &rendered(&shown, here)));
            }
            Read::Wrong(error, problems) => Err((error, problems)),
            // Not one of the program's own commands, so its types do not know it.
            Read::Line(matches) if is_manifest(command, shape, &matches) => {
                return Err(printed(here, &manifest::print(command, shape, self.terms.keys)));
            }
            Read::Line(matches) => match A::from_arg_matches(&matches) {
                Ok(app) => Ok((app, matches)),
                Err(error) => {
                    let problems = parse::problems_of(&error);
                    Err((error, problems))
                }
            },
        };
        let (app, matches) = match wrong {
            Ok(read) => read,
            Err((error, problems)) => return Err(say_wrong(command, shape, words, here, &error, &problems)),
        };
        let (path, said) = flags::chosen(&matches);
        let flags = Flags::read(said);
        Ok(Line { app: Arc::new(app), path, flags, matches })
    }

    fn handle(
        self,
        command: &Command,
        entry: &Entry,
        line: Line<A>,
        words: &[OsString],
        here: &dyn Surroundings,
    ) -> u8 {
        let name = command.get_name();
        let form = line.flags.form.unwrap_or(form_of(here));
        let app = line.app.clone();
        let tell = |reply: &Reply| {
            let data = Some(&reply.envelope.data).filter(|data| form == Form::Text && !data.is_null());
            // How an answer is shown must not decide whether it is told.
            let shown = data.and_then(|data| {
                catch_unwind(AssertUnwindSafe(|| Commands::<A>::job(&*app)?.show(data))).ok().flatten()
            });
            deliver(here, name, form, reply, shown)
        };
        let told = |reply: Reply| {
            let _ = tell(&reply);
            reply.exit
        };
        let Some(job) = Commands::<A>::job(&*app) else { return exit::INTERNAL };
        let mut problems = Problems::default();
        job.validate(&app, &mut problems);
        if !problems.all.is_empty() {
            return told(Reply::of_problems(&problems));
        }
        if let Some(answer) = query(&job, &app) {
            // An answer that nobody got is none.
            let exit = answer.exit;
            return if tell(&answer) == Delivered::Yes { exit } else { exit::INTERNAL };
        }
        if let Some(refusal) = refusal(entry, &line, words, here) {
            return told(refusal);
        }
        let dry_run = line.flags.dry_run;
        let prepared = self.errand(command, entry, line, here).and_then(|errand| Ok((errand, runtime()?)));
        let (errand, runtime) = match prepared {
            Ok(prepared) => prepared,
            Err(reply) => return told(reply),
        };
        let code = runtime.block_on(async {
            if dry_run {
                return errand.dry_run(&|reply| _ = tell(reply)).await;
            }
            errand.run(&|reply| _ = tell(reply), &|line| here.say(&format!("{name}: {line}"))).await
        });
        runtime.shutdown_background();
        code
    }

    fn errand(
        self,
        command: &Command,
        entry: &Entry,
        line: Line<A>,
        here: &dyn Surroundings,
    ) -> Result<Errand<A>, Reply> {
        let usage =
            |code, message: String| Reply::nothing_ran(exit::USAGE, code, format!("{message}; nothing ran"));
        let Work::Handler { declare, .. } = &entry.work else {
            return Err(usage("INTERNAL", "the command has no handler".to_owned()));
        };
        let (declaration, name) = (declare(), command.get_name());
        let payload = payload(command, &line.matches, declaration.key_from_arguments());
        let policy = declaration
            .policy(&self.terms, &payload.above)
            .map_err(|e| usage("BAD_POLICY", format!("what the command declares is not acceptable: {e}")))?;
        let tool = tool_name(name, &line.path).map_err(|e| usage("BAD_NAME", e.to_string()))?;
        let session = variable_name(name, "SESSION");
        let scope = match text(here, &session).map_err(|e| usage("BAD_NAME", e))? {
            Some(text) => Scope::parse(&text).map_err(|e| usage("BAD_NAME", format!("{session}: {e}")))?,
            None => Scope::none(),
        };
        let address = store_address(here, name, self.store).map_err(|e| usage("NO_STORE", e))?;
        let call = Call {
            namespace: self.namespace,
            scope,
            key: line.flags.key,
            policy: Arc::new(policy),
            ..Call::new(tool, payload.json)
        };
        Ok(Errand {
            app: line.app,
            call,
            strategy: declaration.strategy(),
            place: Place { address },
            checked_by: line.flags.retry_unknown.then(|| actor(here)),
        })
    }
}

/// The answer of a safe command; `None` for one that is not.
fn query<A>(job: &Job<'_, A>, app: &A) -> Option<Reply> {
    match job {
        // No runtime, no ledger: a safe command starts as fast as plain clap.
        Job::Query(job) => Some(Reply::of_query(job.run(app))),
        Job::AsyncQuery(job) => {
            let answer = runtime().map(|runtime| Reply::of_query(runtime.block_on(job.run(app))));
            Some(answer.unwrap_or_else(|reply| reply))
        }
        Job::Handler(_) | Job::AsyncHandler(_) => None,
    }
}

/// One thread is enough for a command, and starts faster than a pool.
fn runtime() -> Result<tokio::runtime::Runtime, Reply> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        let message = format!("the runtime cannot start: {error}; nothing ran");
        Reply::nothing_ran(exit::INTERNAL, "INTERNAL", message)
    })
}

fn is_manifest(command: &Command, shape: &Shape, matches: &ArgMatches) -> bool {
    let (path, _) = flags::chosen(matches);
    path == [MANIFEST] && shape.at(command, &path).is_none()
}

/// The tool that a command is: the program's name and the words that lead to it.
pub(crate) fn tool_name(app: &str, path: &[String]) -> Result<ToolName, oncely_core::NameError> {
    let words: Vec<&str> = std::iter::once(app).chain(path.iter().map(String::as_str)).collect();
    ToolName::parse(&words.join(":"))
}

/// Why a destructive command does not run yet: nobody has said that it is meant.
fn refusal<A>(entry: &Entry, line: &Line<A>, words: &[OsString], here: &dyn Surroundings) -> Option<Reply> {
    if entry.danger != Danger::Destructive || line.flags.confirmed || line.flags.dry_run {
        return None;
    }
    let what = line.path.join(" ");
    if !here.can_ask() {
        let message = format!(
            "{what:?} destroys something and nobody can be asked; nothing ran. Repeat it with --confirm"
        );
        let mut words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        // After `--` it would be a value.
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.insert(end, "--confirm".to_owned());
        let reply = Reply::nothing_ran(exit::PRECONDITION, "CONFIRMATION_REQUIRED", message);
        return Some(reply.with_fix(words.join(" ")));
    }
    let answer = here.ask(&format!("{what:?} destroys something. Type yes to go on:"));
    (answer.as_deref() != Some("yes")).then(|| {
        Reply::nothing_ran(
            exit::PRECONDITION,
            "NOT_CONFIRMED",
            format!("{what:?} was not confirmed; nothing ran"),
        )
    })
}

/// Says what is wrong with a line, in clap's own way where a person reads or the command is not ours.
fn say_wrong(
    command: &Command,
    shape: &Shape,
    words: &[OsString],
    here: &dyn Surroundings,
    error: &clap::Error,
    problems: &Problems,
) -> u8 {
    let meant = shape.at(command, &flags::meant(command, words));
    let by_hand = meant.is_some_and(|entry| matches!(entry.work, Work::ByHand));
    let form = guess_form(words, here);
    if by_hand || (form == Form::Text && problems.all.len() <= 1) {
        here.say(rendered(error, here).trim_end());
        return exit::USAGE;
    }
    let reply = Reply::of_problems(problems);
    let _ = deliver(here, command.get_name(), form, &reply, None);
    reply.exit
}
