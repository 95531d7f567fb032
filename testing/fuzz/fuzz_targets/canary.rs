#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| esker_testkit::fuzz::canary(input));
