//! The suite on the reference ledger, with one handle and with several.

mod one_handle {
    use oncely_testkit::conformance::Ledger;
    use oncely_testkit::reference::Reference;

    oncely_testkit::conformance_suite!(|| async { Ledger::volatile(Reference::new()) });
}

mod several_handles {
    use std::sync::Arc;

    use oncely_core::Store;
    use oncely_testkit::conformance::Ledger;
    use oncely_testkit::reference::Reference;

    async fn ledger() -> Ledger {
        let first = Reference::new();
        let again = first.clone();
        Ledger::durable(first, move || {
            let again = again.clone();
            async move { Arc::new(again) as Arc<dyn Store> }
        })
    }

    oncely_testkit::conformance_suite!(ledger);
}
