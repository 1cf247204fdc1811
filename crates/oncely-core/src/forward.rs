//! Handing calls of the store contract on to another store: for stores that stand before one and change a few calls.

/// Implements the named calls of [`Store`](crate::Store) by handing them on to the store in a field.
///
/// ```
/// use oncely_core::*;
///
/// /// A ledger that never shows what it knows by heart.
/// struct Forgetful {
///     store: std::sync::Arc<dyn Store>,
/// }
///
/// impl Store for Forgetful {
///     fn peek(&self, _: &IntentId) -> Option<Stored> {
///         None
///     }
///
///     oncely_core::hand_on!(store: describe expects create load replace note watch liveness owner now steady_since scan log
///         purge tally tallies census flush health gate turn_gate import);
/// }
/// ```
#[macro_export]
macro_rules! hand_on {
    ($field:ident: $($call:ident)+) => {
        $($crate::hand_on!(@ $field $call);)+
    };
    (@ $field:ident describe) => {
        fn describe(&self) -> ::std::string::String {
            self.$field.describe()
        }
    };
    (@ $field:ident peek) => {
        fn peek(&self, intent: &$crate::IntentId) -> ::std::option::Option<$crate::Stored> {
            self.$field.peek(intent)
        }
    };
    (@ $field:ident expects) => {
        fn expects(&self, intent: &$crate::IntentId) -> bool {
            self.$field.expects(intent)
        }
    };
    (@ $field:ident create) => {
        fn create(
            &self,
            intent: $crate::IntentId,
            draft: $crate::Draft,
            events: ::std::vec::Vec<$crate::Event>,
        ) -> $crate::StoreFuture<'_, $crate::Created> {
            self.$field.create(intent, draft, events)
        }
    };
    (@ $field:ident load) => {
        fn load(
            &self,
            intent: $crate::IntentId,
        ) -> $crate::StoreFuture<'_, ::std::option::Option<$crate::Stored>> {
            self.$field.load(intent)
        }
    };
    (@ $field:ident replace) => {
        fn replace(
            &self,
            intent: $crate::IntentId,
            expected: $crate::Version,
            change: $crate::Change,
            events: ::std::vec::Vec<$crate::Event>,
        ) -> $crate::StoreFuture<'_, $crate::Replaced> {
            self.$field.replace(intent, expected, change, events)
        }
    };
    (@ $field:ident note) => {
        fn note(&self, events: ::std::vec::Vec<$crate::Event>) -> $crate::StoreFuture<'_, ()> {
            self.$field.note(events)
        }
    };
    (@ $field:ident watch) => {
        fn watch(&self, intent: $crate::IntentId, seen: $crate::Version) -> $crate::StoreFuture<'_, ()> {
            self.$field.watch(intent, seen)
        }
    };
    (@ $field:ident liveness) => {
        fn liveness(&self, owner: &$crate::Owner) -> $crate::Liveness {
            self.$field.liveness(owner)
        }
    };
    (@ $field:ident owner) => {
        fn owner(&self) -> $crate::Owner {
            self.$field.owner()
        }
    };
    (@ $field:ident now) => {
        fn now(&self) -> $crate::StoreFuture<'_, $crate::Millis> {
            self.$field.now()
        }
    };
    (@ $field:ident steady_since) => {
        fn steady_since(&self) -> $crate::Millis {
            self.$field.steady_since()
        }
    };
    (@ $field:ident scan) => {
        fn scan(
            &self,
            filter: $crate::Filter,
            from: u64,
            limit: usize,
        ) -> $crate::StoreFuture<'_, $crate::Page<$crate::Stored>> {
            self.$field.scan(filter, from, limit)
        }
    };
    (@ $field:ident log) => {
        fn log(&self, query: $crate::LogQuery) -> $crate::StoreFuture<'_, $crate::Page<$crate::LoggedEvent>> {
            self.$field.log(query)
        }
    };
    (@ $field:ident purge) => {
        fn purge(&self, limit: usize) -> $crate::StoreFuture<'_, $crate::PurgeReport> {
            self.$field.purge(limit)
        }
    };
    (@ $field:ident tally) => {
        fn tally(
            &self,
            namespace: &$crate::Namespace,
            tool: &$crate::ToolName,
            increments: &[($crate::Counter, u64)],
        ) {
            self.$field.tally(namespace, tool, increments);
        }
    };
    (@ $field:ident tallies) => {
        fn tallies(&self) -> $crate::StoreFuture<'_, ::std::vec::Vec<$crate::Tally>> {
            self.$field.tallies()
        }
    };
    (@ $field:ident census) => {
        fn census(&self) -> $crate::StoreFuture<'_, ::std::vec::Vec<($crate::StateName, u64)>> {
            self.$field.census()
        }
    };
    (@ $field:ident flush) => {
        fn flush(&self) -> $crate::StoreFuture<'_, ()> {
            self.$field.flush()
        }
    };
    (@ $field:ident health) => {
        fn health(&self) -> $crate::StoreHealth {
            self.$field.health()
        }
    };
    (@ $field:ident gate) => {
        fn gate(&self) -> $crate::StoreFuture<'_, $crate::Gate> {
            self.$field.gate()
        }
    };
    (@ $field:ident turn_gate) => {
        fn turn_gate(&self, from: $crate::Gate, to: $crate::Gate) -> $crate::StoreFuture<'_, $crate::Gate> {
            self.$field.turn_gate(from, to)
        }
    };
    (@ $field:ident import) => {
        fn import(&self, under: $crate::Move, import: $crate::Import) -> $crate::StoreFuture<'_, ()> {
            self.$field.import(under, import)
        }
    };
}
