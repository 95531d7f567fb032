#![no_main]

use esker_cli::text::Format;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let format = Format::Tsv;
    if let Ok((key, value)) = format.decode(input) {
        let mut line = Vec::new();
        format.encode(&key, &value, &mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        assert_eq!(format.decode(&line), Ok((key, value)));
    }
});
