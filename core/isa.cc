#include "core/isa.h"

#include <algorithm>
#include <array>

#include "core/isa_targets.h"

namespace macaw {
namespace {

constexpr std::array kAll = {Isa::kAvx512, Isa::kAvx2, Isa::kSse4, Isa::kNeon, Isa::kPortable};

#if defined(__x86_64__)
// What Highway's functions of that name are compiled with.
bool Has(Isa isa) {
  const bool sse4 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  const bool avx2 = sse4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  switch (isa) {
    case Isa::kAvx512:
      return (HWY_TARGETS & HWY_AVX3) != 0 && avx2 && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw");
    case Isa::kAvx2:
      return (HWY_TARGETS & HWY_AVX2) != 0 && avx2;
    case Isa::kSse4:
      return (HWY_TARGETS & HWY_SSE4) != 0 && sse4;
    case Isa::kPortable:
      return (HWY_TARGETS & (HWY_SCALAR | HWY_EMU128)) != 0;
    case Isa::kNeon:
      return false;
  }
  return false;
}
#else
bool Has(Isa isa) { return isa == (HWY_STATIC_TARGET == HWY_NEON ? Isa::kNeon : Isa::kPortable); }
#endif

}  // namespace

absl::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kSse4:
      return "sse4";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  return "unknown";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  std::copy_if(kAll.begin(), kAll.end(), std::back_inserter(isas), Has);
  return isas;
}

Isa BestIsa() {
  static const Isa best = SupportedIsas().front();
  return best;
}

}  // namespace macaw
