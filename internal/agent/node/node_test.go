package node

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestHugePagesOfTheMachine(t *testing.T) {
	t.Parallel()
	list := hugePages(map[int64]int64{2 << 20: 8 << 20, 1 << 30: 3 << 30})
	pages, large := list["hugepages-2Mi"], list["hugepages-1Gi"]
	if len(list) != 2 || pages.Cmp(resource.MustParse("8Mi")) != 0 || large.Cmp(resource.MustParse("3Gi")) != 0 {
		t.Errorf("%v", list)
	}
}
