//! Bodies of answers in gRPC-Web, plain and in base64.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u16, &[u8])| {
    oncely_fuzz::grpc_web::answer(input.1, usize::from(input.0));
});
