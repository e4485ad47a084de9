#include "training/device/product_shape.h"

#include <algorithm>
#include <limits>

namespace macaw::training::ondevice {
namespace {

uint64_t Tiles(uint64_t count, uint64_t tile) { return (count + tile - 1) / tile; }

}  // namespace

// 18 for the products of a 4 × 4 part, 20 for an element of a tile, 200 for the wait for a tile of
// shared memory, 100 at the end of a tile.
uint64_t CostOf(const GemmShape& shape, uint64_t m, uint64_t n, uint64_t k) {
  const uint64_t tile_m = uint64_t{4} << shape.rows, tile_n = uint64_t{4} << shape.columns;
  const uint64_t products = k * (uint64_t{18 * 256} >> shape.lanes);
  const uint64_t loads = k * 20 * (std::min(tile_m, m) + std::min(tile_n, n));
  const uint64_t waits = Tiles(k, shape.depth) * 200 * 256 + 100 * 256;
  return Tiles(m, tile_m) * Tiles(n, tile_n) * (products + loads + waits);
}

GemmShape ShapeOfProduct(uint64_t m, uint64_t n, uint64_t k) {
  GemmShape best;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t rows = 0; rows <= 4; ++rows) {
    for (uint32_t columns = 0; columns <= 7 && rows + columns <= 8; ++columns) {
      GemmShape shape;
      shape.rows = rows;
      shape.columns = columns;
      while (shape.lanes < 5 && rows + columns + shape.lanes < 8 &&
             uint64_t{32} << shape.lanes <= k) {
        ++shape.lanes;
      }
      const uint64_t tile_m = uint64_t{4} << rows, tile_n = uint64_t{4} << columns;
      const uint64_t unit = std::max<uint64_t>(16, uint64_t{1} << shape.lanes);
      const uint64_t depth = std::min<uint64_t>(256, kTileFloats / (tile_m + tile_n + 8));
      shape.depth = static_cast<uint32_t>(depth / unit * unit);
      const uint64_t cost = CostOf(shape, m, n, k);
      if (cost >= least) continue;
      least = cost;
      best = shape;
    }
  }
  return best;
}

}  // namespace macaw::training::ondevice
