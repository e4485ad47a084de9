#pragma once

#include <cstddef>
#include <cstdint>

#include "aggregation/fold-inl.h"
#include "device/kernel.h"

// The kernels of device_sum.h. One launch takes some clients' vectors of one channel. Each element
// of a sum has one thread, and integers are added, so neither the number of threads nor the order
// of clients changes a bit. Private to this room.
namespace macaw::aggregation {

// A client's vector of one channel, and m·w·2^bits of it.
struct FoldVector {
  const float* values = nullptr;
  const float* minus = nullptr;  // null: nothing is subtracted
  float factor = 1;
  double scale = 0;
};

// (values − minus)·factor, rounded after each operation. The factor is for the first `factored`
// elements, the parameters.
MACAW_ELEMENT float ValueAt(const FoldVector& vector, size_t i, size_t factored) {
  float value = vector.values[i];
  if (vector.minus != nullptr) value = value - vector.minus[i];
  return i < factored && vector.factor != 1 ? value * vector.factor : value;
}

inline constexpr uint64_t kNoElement = UINT64_MAX;

// What one vector, or a piece of one, holds.
struct Measure {
  uint64_t offender = kNoElement;  // the first element that is not finite or beyond the bound
  uint32_t largest = 0;            // MagnitudeBits
  float value = 0;                 // of the offender
};

struct ClientVerdict {
  uint32_t refused = 0;  // 1 + the first channel with an offender; 0: the client passes
};

MACAW_ELEMENT void Include(const Measure& other, Measure& into) {
  if (other.largest > into.largest) into.largest = other.largest;
  if (other.offender < into.offender) {
    into.offender = other.offender;
    into.value = other.value;
  }
}

// measures[client · pieces + piece]. A piece is `piece_size` elements. The block's shared memory
// holds a Measure a thread.
struct MeasureArgs {
  const FoldVector* vectors = nullptr;  // one a client
  uint32_t clients = 0;
  uint32_t pieces = 0;  // of a vector
  size_t piece_size = 0;
  size_t count = 0;     // elements of a vector
  size_t factored = 0;  // as for ValueAt
  double bound = 0;
  Measure* measures = nullptr;
};
inline constexpr device::Kernel<MeasureArgs> kMeasureVectors = {"aggregation.measure_vectors"};

MACAW_KERNEL void MeasureVectors(const MeasureArgs& args, const device::Team& team) {
  auto* const shared = reinterpret_cast<Measure*>(team.shared);
  const size_t items = size_t{args.clients} * args.pieces;
  for (size_t item = team.block; item < items; item += team.blocks) {
    const FoldVector& vector = args.vectors[item / args.pieces];
    const size_t begin = item % args.pieces * args.piece_size;
    const size_t rest = args.count - begin;
    const size_t end = begin + (rest < args.piece_size ? rest : args.piece_size);
    Measure mine;
    for (size_t i = begin + team.thread; i < end; i += team.threads) {
      const float value = ValueAt(vector, i, args.factored);
      const uint32_t bits = MagnitudeBits(value);
      if (bits > mine.largest) mine.largest = bits;
      // A comparison with NaN is false.
      const bool fits = double{std::bit_cast<float>(bits)} <= args.bound;
      if (!fits && mine.offender == kNoElement) {
        mine.offender = i;
        mine.value = value;
      }
    }
    shared[team.thread] = mine;
    team.Sync();
    for (uint32_t left = team.threads; left > 1;) {
      const uint32_t half = (left + 1) / 2;
      if (team.thread + half < left) Include(shared[team.thread + half], shared[team.thread]);
      team.Sync();
      left = half;
    }
    if (team.thread == 0) args.measures[item] = shared[0];
    team.Sync();  // before the next item's are written
  }
}

// Puts the pieces together: measures of whole vectors, and which clients pass so far.
struct JudgeArgs {
  const Measure* pieces_of = nullptr;  // as MeasureVectors leaves them
  uint32_t clients = 0;
  uint32_t pieces = 0;
  uint32_t channel = 0;
  uint32_t first = 0;                 // whether no other channel was judged before
  Measure* measures = nullptr;        // one a client
  ClientVerdict* verdicts = nullptr;  // one a client
};
inline constexpr device::Kernel<JudgeArgs> kJudgeClients = {"aggregation.judge_clients"};

MACAW_KERNEL void JudgeClients(const JudgeArgs& args, const device::Team& team) {
  for (size_t client = team.first(); client < args.clients; client += team.stride()) {
    Measure whole;
    for (uint32_t piece = 0; piece < args.pieces; ++piece)
      Include(args.pieces_of[client * args.pieces + piece], whole);
    args.measures[client] = whole;
    uint32_t refused = args.first != 0 ? 0 : args.verdicts[client].refused;
    if (refused == 0 && whole.offender != kNoElement) refused = args.channel + 1;
    args.verdicts[client].refused = refused;
  }
}

// sums[i] += Σ of the values of the clients that pass, each rounded to the grid.
struct FoldArgs {
  const FoldVector* vectors = nullptr;      // one a client
  const ClientVerdict* verdicts = nullptr;  // one a client
  uint32_t clients = 0;
  int64_t* sums = nullptr;
  size_t count = 0;
  size_t factored = 0;  // as for ValueAt
};
inline constexpr device::Kernel<FoldArgs> kFoldVectors = {"aggregation.fold_vectors"};

MACAW_KERNEL void FoldVectors(const FoldArgs& args, const device::Team& team) {
  for (size_t i = team.first(); i < args.count; i += team.stride()) {
    int64_t sum = args.sums[i];
    for (uint32_t client = 0; client < args.clients; ++client) {
      if (args.verdicts[client].refused != 0) continue;
      const FoldVector& vector = args.vectors[client];
      sum += Rounded(ValueAt(vector, i, args.factored), vector.scale);
    }
    args.sums[i] = sum;
  }
}

// sums[i] = the largest key of the clients that pass, and of sums[i].
inline constexpr device::Kernel<FoldArgs> kFoldKeys = {"aggregation.fold_keys"};

MACAW_KERNEL void FoldKeys(const FoldArgs& args, const device::Team& team) {
  for (size_t i = team.first(); i < args.count; i += team.stride()) {
    int64_t largest = args.sums[i];
    for (uint32_t client = 0; client < args.clients; ++client) {
      if (args.verdicts[client].refused != 0) continue;
      const int64_t key = KeyOf(double{ValueAt(args.vectors[client], i, args.factored)});
      if (key > largest) largest = key;
    }
    args.sums[i] = largest;
  }
}

struct FillIntegersArgs {
  int64_t* out = nullptr;
  size_t count = 0;
  int64_t value = 0;
};
inline constexpr device::Kernel<FillIntegersArgs> kFillIntegers = {"aggregation.fill_integers"};

MACAW_KERNEL void FillIntegers(const FillIntegersArgs& args, const device::Team& team) {
  for (size_t i = team.first(); i < args.count; i += team.stride()) args.out[i] = args.value;
}

// into[i] = into[i] + from[i], or their maximum.
struct MergeArgs {
  const int64_t* from = nullptr;
  int64_t* into = nullptr;
  size_t count = 0;
  uint32_t maximum = 0;
};
inline constexpr device::Kernel<MergeArgs> kMergeIntegers = {"aggregation.merge_integers"};

MACAW_KERNEL void MergeIntegers(const MergeArgs& args, const device::Team& team) {
  for (size_t i = team.first(); i < args.count; i += team.stride()) {
    const int64_t mine = args.into[i], theirs = args.from[i];
    args.into[i] = args.maximum == 0 ? mine + theirs : mine > theirs ? mine : theirs;
  }
}

}  // namespace macaw::aggregation
