use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

fn read(format: Format, bytes: &[u8]) -> (Vec<TraceOp>, Option<String>) {
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let trace = match Trace::from_stream(format, Path::new("t"), stream) {
        Ok(trace) => trace,
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let mut ops = Vec::new();
    for op in trace {
        match op {
            Ok(op) => ops.push(op),
            Err(error) => return (ops, Some(error.to_string())),
        }
    }
    (ops, None)
}

fn good(format: Format, text: &str) -> Vec<TraceOp> {
    let (ops, error) = read(format, text.as_bytes());
    assert_eq!(error, None);
    ops
}

fn op(at_ns: u64, kind: OpKind, offset: u64, length: u64) -> TraceOp {
    TraceOp { at_ns, offset, length, kind, stream: 0 }
}

/// A stream whose bytes stay readable.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn written(ops: &[TraceOp]) -> Vec<u8> {
    let shared = Shared::default();
    let mut writer = TraceWriter::new(Path::new("t"), Box::new(shared.clone())).unwrap();
    for op in ops {
        writer.push(op).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), ops.len() as u64);
    let bytes = shared.0.lock().unwrap();
    bytes.clone()
}

const MSR: &str = "\
128166372003061629,web,0,Read,7014609920,24576,41286
128166372016382155,web,0,Write,1317441536,8192,1963
128166372026382245,web,0,Write,2436440064,4096,1835
";

const FIO2: &str = "\
fio version 2 iolog
/dev/sdb add
/dev/sdb open
/dev/sdb write 0 4096
/dev/sdb wait 2000 0
/dev/sdb read 8192 512
/dev/sdb datasync 0 0
/dev/sdb trim 4096 4096
/dev/sdb close
";

const FIO3: &str = "\
fio version 3 iolog
12 /dev/sdb add
15 /dev/sdb open
100 /dev/sdb write 0 4096
250 /dev/sdb sync 0 0
251 /dev/sdb sync_file_range 0 4096
260 /dev/sdb close
";

const MQSIM: &str = "\
17000 0 128 8 0
18500 1 4096 16 1
";

const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000002197   697  P   N [kjournald]
  8,0    3        5     0.000009071   697  D   W 223490 + 8 [kjournald]
  8,0    1        0     0.000011750     0  m   N cfq1050S sl_used=2
  8,0    3        6     0.001009071   697  D FWS [jbd2/sda]
  8,0    3        7     0.002009071   697  D FWFSM 16 + 8 [jbd2/sda]
  8,0    3        8     0.003009071   697  D  DS 4096 + 2048 [fstrim]
  8,0    3        9     0.004009071   697  D   R 36 (12 00 00 00 24 00) [udevd]
  8,0    3       10     0.005009071   697  D  RA 64 + 16 [cat]
  8,0    0       11     0.006009071     0  C   W 223490 + 8 [0]
CPU0 (8,0):
 Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB
";

#[test]
fn a_trace_of_msr_is_read() {
    let expected = [
        op(0, OpKind::Read, 7_014_609_920, 24_576),
        op(1_332_052_600, OpKind::Write, 1_317_441_536, 8_192),
        op(2_332_061_600, OpKind::Write, 2_436_440_064, 4_096),
    ];
    assert_eq!(good(Format::Msr, MSR), expected);
    let with_header =
        format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\r\n{MSR}\n\n");
    assert_eq!(good(Format::Msr, &with_header), expected);
}

#[test]
fn logs_of_fio_are_read() {
    let expected = [
        op(0, OpKind::Write, 0, 4096),
        op(2_000_000, OpKind::Read, 8192, 512),
        TraceOp::flush(2_000_000),
        op(2_000_000, OpKind::Trim, 4096, 4096),
    ];
    assert_eq!(good(Format::Fio, FIO2), expected);
    assert_eq!(good(Format::Fio, FIO3), [op(0, OpKind::Write, 0, 4096), TraceOp::flush(150_000)]);
}

#[test]
fn a_trace_of_mqsim_is_read() {
    let expected = [op(0, OpKind::Write, 65_536, 4096), op(1500, OpKind::Read, 2_097_152, 8192)];
    assert_eq!(good(Format::Mqsim, MQSIM), expected);
}

#[test]
fn requests_of_blkparse_are_those_of_one_event() {
    let issued = [
        op(0, OpKind::Write, 223_490 * 512, 4096),
        TraceOp::flush(1_000_000),
        TraceOp::flush(2_000_000),
        op(2_000_000, OpKind::Write, 16 * 512, 4096),
        op(3_000_000, OpKind::Trim, 4096 * 512, 1 << 20),
        op(5_000_000, OpKind::Read, 64 * 512, 8192),
    ];
    assert_eq!(good(Format::Blkparse(Event::Issued), BLKPARSE), issued);
    let one = [op(0, OpKind::Write, 223_490 * 512, 4096)];
    assert_eq!(good(Format::Blkparse(Event::Queued), BLKPARSE), one);
    assert_eq!(good(Format::Blkparse(Event::Completed), BLKPARSE), one);
    let line = BLKPARSE.lines().next().unwrap();
    let (ops, error) = read(Format::Blkparse(Event::Issued), line.as_bytes());
    let error = error.unwrap();
    assert!(ops.is_empty() && error.contains("no events D") && error.contains("blkparse-q:FILE"));
}

#[test]
fn a_malformed_line_is_named() {
    let cases: [(Format, &str, &[&str]); 20] = [
        (Format::Msr, "1,h,0,Read,0", &["t:1:", "ends before its size"]),
        (Format::Msr, "1,h,0,Read,0,512,1,9", &["more than 7"]),
        (Format::Msr, "x,h,0,Read,0,512,1", &["timestamp", "'x'"]),
        (Format::Msr, "1,h,0,Erase,0,512,1", &["Erase", "Read or Write"]),
        (Format::Msr, "1,h,0,Read,18446744073709551615,2,1", &["2^64"]),
        (Format::Msr, "1,h,0,Read,0,1,1\n2,h,1,Read,0,1,1", &["t:2:", "h,1", "one disk"]),
        (Format::Mqsim, "1 0 0 8", &["type"]),
        (Format::Mqsim, "1 0 0 8 2", &["'2'", "0 (write)"]),
        (Format::Mqsim, "1 0 0 36028797018963968 0", &["2^64"]),
        (Format::Mqsim, "1 0 0 8 1 1", &["more than 5"]),
        (Format::Fio, "fio version 4 iolog", &["t:1:", "4", "2 and 3"]),
        (Format::Fio, "a,b", &["a,b", "fio version 2 iolog"]),
        (Format::Fio, "fio version 2 iolog\nf erase 0 1", &["t:2:", "'erase'"]),
        (Format::Fio, "fio version 3 iolog\n1 f wait 0 1", &["wait"]),
        (Format::Fio, "fio version 2 iolog\nf read 0 1\ng read 0 1", &["t:3:", "g", "one file"]),
        (Format::Blkparse(Event::Issued), "8.0 1 1 0.0 1 D W 0 + 8", &["8.0", "MAJOR,MINOR"]),
        (Format::Blkparse(Event::Issued), "8,0 1 1 zero 1 D W 0 + 8", &["time", "zero"]),
        (Format::Blkparse(Event::Issued), "8,0 1 1 0.0 1 D W x + 8", &["sector", "'x'"]),
        (Format::Blkparse(Event::Issued), "8,0 1 1 0.0 1 D", &["RWBS"]),
        (
            Format::Blkparse(Event::Issued),
            "8,0 1 1 0.0 1 D W 0 + 8\n8,1 1 1 0.0 1 D W 0 + 8",
            &["t:2:", "8,1", "one device"],
        ),
    ];
    for (format, text, words) in cases {
        let (_, error) = read(format, text.as_bytes());
        let error = error.unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        assert!(!error.contains('\n'));
    }
    let (_, error) = read(Format::Msr, &vec![b'x'; 1 << 20]);
    assert!(error.unwrap().contains("longer than 65536"));
}

#[test]
fn compressed_traces_are_read_and_truncated_ones_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(MSR.as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    assert_eq!(read(Format::Msr, &bytes), (good(Format::Msr, MSR), None));
    // Two members, as `cat a.gz b.gz` makes them.
    let (ops, error) = read(Format::Msr, &[&bytes[..], &bytes].concat());
    assert_eq!((ops.len(), error), (6, None));
    for length in 2..bytes.len() {
        assert!(read(Format::Msr, &bytes[..length]).1.is_some(), "{length}");
    }
}

/// A few operations that use every field of the binary format.
fn sample() -> Vec<TraceOp> {
    vec![
        op(0, OpKind::Write, 1 << 20, 8192),
        op(1500, OpKind::Write, (1 << 20) + 8192, 8192),
        TraceOp { stream: 3, ..op(1500, OpKind::Read, 7, 100) },
        TraceOp { stream: 3, ..TraceOp::flush(2_000_000) },
        op(2_000_001, OpKind::Trim, 0, 1 << 30),
    ]
}

#[test]
fn the_binary_format_is_what_its_page_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/trace.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once("```hex trace\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let words = block.lines().flat_map(|line| line.split(';').next().unwrap().split(' '));
    let bytes: Vec<u8> = words
        .filter(|word| !word.is_empty())
        .map(|word| u8::from_str_radix(word, 16).unwrap())
        .collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
    assert_eq!(hex(&bytes), hex(&written(&sample())));
    assert_eq!(read(Format::Esker, &bytes), (sample(), None));
}

#[test]
fn every_truncation_and_every_flip_of_a_binary_trace_is_an_error() {
    let bytes = written(&sample());
    for length in 0..bytes.len() {
        assert!(read(Format::Esker, &bytes[..length]).1.is_some(), "{length}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(Format::Esker, &flipped).1.is_some(), "bit {bit}");
    }
    assert!(read(Format::Esker, &[&bytes[..], b"x"].concat()).1.unwrap().contains("follow"));
    let mut newer = bytes;
    newer[8] = 2;
    let error = read(Format::Esker, &newer).1.unwrap();
    assert!(error.contains("version 2") && error.contains("up to version 1"), "{error}");
}

#[test]
fn a_text_trace_cut_anywhere_gives_a_prefix_or_an_error() {
    for (format, text) in [
        (Format::Msr, MSR),
        (Format::Fio, FIO2),
        (Format::Fio, FIO3),
        (Format::Mqsim, MQSIM),
        (Format::Blkparse(Event::Issued), BLKPARSE),
    ] {
        let whole = good(format, text);
        for length in 0..text.len() {
            let (ops, _) = read(format, &text.as_bytes()[..length]);
            // The last line may have lost digits, or the end of its action.
            let sure = ops.len().saturating_sub(1);
            assert!(sure <= whole.len() && ops[..sure] == whole[..sure], "{format:?} {length}");
        }
    }
}

#[test]
fn names_of_traces_have_a_format() {
    let source: TraceSource = "msr:a:b.csv".parse().unwrap();
    assert_eq!((source.format, source.path.as_path()), (Format::Msr, Path::new("a:b.csv")));
    assert_eq!(source.to_string(), "msr:a:b.csv");
    for wrong in ["web_0.csv", "csv:web_0.csv", "msr:", ":x", ""] {
        let error = wrong.parse::<TraceSource>().unwrap_err().to_string();
        assert!(error.contains("blkparse-q, blkparse-c, fio, mqsim, esker"), "{error}");
    }
    for (name, format) in Format::ALL {
        assert_eq!(format.name(), name);
    }
}

#[test]
fn memory_does_not_grow_with_the_file() {
    // A line at a time: the reader asks for no more than its buffers hold.
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(buffer.len() <= 1 << 20);
            self.0 += buffer.len() as u64;
            let line = b"1,h,0,Write,0,4096,1\n";
            let count = buffer.len() / line.len() * line.len();
            for chunk in buffer[..count].chunks_mut(line.len()) {
                chunk.copy_from_slice(line);
            }
            Ok(count)
        }
    }
    let trace = Trace::from_stream(Format::Msr, Path::new("t"), Box::new(Endless(0))).unwrap();
    assert!(trace.take(500_000).all(|op| op.is_ok()));
}

fn any_op() -> impl Strategy<Value = TraceOp> {
    let kind = prop_oneof![Just(OpKind::Read), Just(OpKind::Write), Just(OpKind::Trim)];
    let offset = prop_oneof![0..1_u64 << 62, (0..1_u64 << 40).prop_map(|sector| sector * 512)];
    let length = prop_oneof![0..1_u64 << 32, (0..1_u64 << 20).prop_map(|sectors| sectors * 512)];
    (0..u64::MAX / 64, offset, length, kind, any::<u8>(), any::<bool>()).prop_map(
        |(at_ns, offset, length, kind, stream, is_flush)| match is_flush {
            true => TraceOp { stream, ..TraceOp::flush(at_ns) },
            false => TraceOp { at_ns, offset, length, kind, stream },
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(mut ops in prop::collection::vec(any_op(), 0..40)) {
        let mut at_ns = 0;
        for op in &mut ops {
            let step = op.at_ns;
            op.at_ns = at_ns;
            at_ns = at_ns.saturating_add(step);
        }
        prop_assert_eq!(read(Format::Esker, &written(&ops)), (ops, None));
    }

    #[test]
    fn any_bytes_are_operations_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        text in "(fio version [23] iolog\n)?([0-9a-z,.+ /\n-]|Read|Write|D W|wait){0,120}",
    ) {
        for (_, format) in Format::ALL {
            read(format, &bytes);
            read(format, text.as_bytes());
            read(format, &[b"esktrace\x01\0\0\0", &bytes[..]].concat());
            read(format, &[b"\x1f\x8b\x08\0", &bytes[..]].concat());
        }
    }

    #[test]
    fn a_changed_byte_of_a_text_never_panics(at in 0..10_000_usize, byte in any::<u8>()) {
        for (format, text) in
            [(Format::Msr, MSR), (Format::Fio, FIO3), (Format::Blkparse(Event::Issued), BLKPARSE)]
        {
            let mut bytes = text.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            read(format, &bytes);
        }
    }
}
