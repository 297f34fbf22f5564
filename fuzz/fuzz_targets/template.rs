#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| onlynew::connector::fuzzing::template(data));
