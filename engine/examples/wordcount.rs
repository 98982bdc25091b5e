//! Counts the words of text files, exactly once.

use std::io::Write;

use tidegate::{Job, sink, source};

fn main() -> tidegate::Result<()> {
    let job = Job::new("wordcount");
    job.source("lines", source::text_files("input/*.txt"))
        .flat_map(|line, out| {
            for word in line.split_whitespace() {
                out.emit(word);
            }
        })
        .key_by_ref::<String>(|word| *word)
        .count("counts")
        .sink(
            "files",
            sink::exactly_once_files("out")
                .format(|(word, count), line| write!(line, "{word},{count}")),
        );
    job.run()?;
    Ok(())
}
