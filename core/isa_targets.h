#pragma once

// The frame of a kernel source, which is compiled once for each instruction set:
//
//   #include "training/fused/foo.h"
//   #include <...>  // everything else that it needs
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "training/fused/foo.cc"
//   #include "core/isa_targets.h"
//   #include "hwy/foreach_target.h"  // reads this file again for each instruction set but one
//   #include "hwy/highway.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace macaw::training::fused {
//   namespace HWY_NAMESPACE {
//   class Foo final : public Block { ... };
//   std::unique_ptr<Block> NewFoo(const Shape& in) { return std::make_unique<Foo>(in); }
//   }  // namespace HWY_NAMESPACE
//   }  // namespace macaw::training::fused
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE
//   namespace macaw::training::fused {
//   std::unique_ptr<Block> MakeFoo(Isa isa, const Shape& in) { MACAW_FOR_ISA(isa, NewFoo, in); }
//   }  // namespace macaw::training::fused
//   #endif
//
// So the choice is made once, when a block is made; within it nothing is dispatched and the
// compiler sees a block's whole pass. clang wants HWY_ATTR on each lambda inside HWY_NAMESPACE.

// Instruction sets that hardly anybody uses would only cost compile time.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include "core/isa.h"
#include "hwy/detect_targets.h"

#if HWY_TARGETS & HWY_AVX3
#define MACAW_AVX512_CASE(make, ...) \
  case Isa::kAvx512:                 \
    return N_AVX3::make(__VA_ARGS__);
#else
#define MACAW_AVX512_CASE(make, ...)
#endif
#if HWY_TARGETS & HWY_AVX2
#define MACAW_AVX2_CASE(make, ...) \
  case Isa::kAvx2:                 \
    return N_AVX2::make(__VA_ARGS__);
#else
#define MACAW_AVX2_CASE(make, ...)
#endif
#if HWY_TARGETS & HWY_SSE4
#define MACAW_SSE4_CASE(make, ...) \
  case Isa::kSse4:                 \
    return N_SSE4::make(__VA_ARGS__);
#else
#define MACAW_SSE4_CASE(make, ...)
#endif

// Returns make(arguments) of the namespace that belongs to `isa`: one of SupportedIsas(). The last
// line is the build's baseline: portable code on x86-64, NEON on arm64.
#define MACAW_FOR_ISA(isa, make, ...)                \
  switch (isa) {                                     \
    MACAW_AVX512_CASE(make, __VA_ARGS__)             \
    MACAW_AVX2_CASE(make, __VA_ARGS__)               \
    MACAW_SSE4_CASE(make, __VA_ARGS__)               \
    default:                                         \
      return HWY_STATIC_DISPATCH(make)(__VA_ARGS__); \
  }
