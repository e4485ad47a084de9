#pragma once

// MACAW_CLONES before a function compiles it once per instruction set; the best one is chosen at
// start-up. Use it only on plain loops whose elements do not depend on each other. All clones then
// give the same bits, because the build never fuses multiply-add. Sanitizer builds and other
// processors have one version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(MACAW_SANITIZED)
#define MACAW_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MACAW_CLONES
#endif
