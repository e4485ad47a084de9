#pragma once

namespace macaw::models {

// Keeps LibTorch on the calling thread: one intra-op thread here, one inter-op thread in the
// process. Every thread calls this before its first op, because each new thread starts with a
// setting of all cores, and another number of intra-op threads gives other bits. Cheap after a
// thread's first call.
void UseOneThread();

}  // namespace macaw::models
