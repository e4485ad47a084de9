#pragma once

// MACAW_CLONES before a function compiles it once per instruction set and picks one at start-up.
// Use it on plain loops only, whose elements do not depend on each other: without fused
// multiply-add (the build never contracts) every clone then gives the same bits, just faster.
// Sanitizer builds and other processors have one version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(MACAW_SANITIZED)
#define MACAW_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MACAW_CLONES
#endif
