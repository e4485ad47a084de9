#pragma once

#include <cstddef>
#include <cstdint>

namespace macaw::training {

// The cells in which rows are counted by a score, the log-odds of a class, for its AUC. A cell is
// of one of three groups, which have size() cells each:
//
// - kLinear: equal cells from −16 to 16;
// - kBeyond: scores beyond, up to 10⁶. Each octave has equal cells;
// - kNear: within 1 of `centre`, the score of a model that has learnt nothing. Each octave of the
//   distance has equal cells; distances below 2⁻¹⁵ lie in the innermost cells.
//
// Release 0.1.0 has the linear cells alone. Immutable, thread-safe.
class ScoreCells {
 public:
  enum class Group : uint8_t { kLinear, kBeyond, kNear };
  struct Cell {
    Group group;
    size_t number;  // of the group, ascending with the score
  };

  ScoreCells() = default;  // none
  // `histograms`: how many there are, from 2 to 2 · kMostClasses. They share the memory of a lane
  // and the room of a message. `centre`: from −15 to 15.
  ScoreCells(size_t histograms, double centre);

  size_t size() const { return size_; }
  Cell Of(double score) const;
  // The place of a cell among all of them in the order of their scores.
  size_t PlaceOf(Cell cell) const;
  // Whether all scores of a linear cell are counted in near ones.
  bool IsCovered(size_t linear) const { return linear > below_ && linear < above_; }
  // Where release 0.1.0 counts the scores of this cell; those that lie in two, by their middle.
  size_t LinearOf(Cell cell) const;

 private:
  size_t LinearAt(double score) const;  // of a score from −16 to 16

  size_t size_ = 0;
  double centre_ = 0;
  // The last linear cell with scores below centre − 1, the first one with some above centre + 1.
  size_t below_ = 0, above_ = 0;
};

}  // namespace macaw::training
