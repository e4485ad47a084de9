#pragma once

namespace macaw::models {

// Keeps LibTorch on the calling thread: one intra-op thread here, one inter-op thread in the
// process. Every thread that runs an op calls this before its first one, because a new thread
// starts with all cores again and two intra-op threads give other bits. Cheap after the first call
// on a thread.
void UseOneThread();

}  // namespace macaw::models
