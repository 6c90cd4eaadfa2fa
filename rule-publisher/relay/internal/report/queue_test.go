package report

import (
	"slices"
	"testing"
)

// TestQueueDropsTheOldest checks that a full queue drops the oldest item, counts it, and keeps the
// order. Done for an item that was dropped in the meantime removes no other item.
func TestQueueDropsTheOldest(t *testing.T) {
	dropped := 0
	q := NewQueue[int](3, func() { dropped++ })
	for i := range 5 {
		q.Put(i)
	}
	first := q.First(2)
	if !slices.Equal(first, []int{2, 3}) || dropped != 2 {
		t.Errorf("first %v, dropped %d", first, dropped)
	}
	q.Put(5) // drops 2, which is being sent
	q.Done(2)
	q.Done(3)
	if left := q.First(9); !slices.Equal(left, []int{4, 5}) || q.Len() != 2 || dropped != 3 {
		t.Errorf("left %v, dropped %d", left, dropped)
	}
}
