#pragma once

namespace macaw::bench {

// A run of macaw-server and macaw-worker with a model of 1 GB over a line of 16 MB/s, whose sum
// has 2 GB, over mutual TLS and with the default timeouts. The line is cut once in the middle of
// the download and once in the middle of the upload. Prints times, bytes and the peaks of memory,
// then simulates the run: it must end with the same model. About eight minutes and 15 GB of disk.
void MeasureLarge();

}  // namespace macaw::bench
