package pod

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxUserGroups is the maximum number of groups that UserOf records: an image can put its user into
// thousands, which every record of every instance would have.
const maxUserGroups = 1000

// UserOf returns the user and groups of an instance's first process as text, UID:GID:GROUPS with
// commas between the groups; "" if there are more than maxUserGroups.
func UserOf(uid, gid uint32, groups []uint32) string {
	if len(groups) > maxUserGroups {
		return ""
	}
	all := make([]string, len(groups))
	for i, group := range groups {
		all[i] = strconv.FormatUint(uint64(group), 10)
	}
	return fmt.Sprintf("%d:%d:%s", uid, gid, strings.Join(all, ","))
}

// ReadUser returns the user of a text of UserOf as the status shows it; nil for any other text, such
// as that of an instance of an earlier version of podrun.
func ReadUser(spelled string) *v1.ContainerUser {
	uid, rest, _ := strings.Cut(spelled, ":")
	gid, groups, complete := strings.Cut(rest, ":")
	numbers := []string{uid, gid}
	if groups != "" {
		numbers = append(numbers, strings.Split(groups, ",")...)
	}
	ids := make([]int64, len(numbers))
	for i, number := range numbers {
		id, err := strconv.ParseUint(number, 10, 32)
		if err != nil || !complete {
			return nil
		}
		ids[i] = int64(id)
	}
	user := &v1.LinuxContainerUser{UID: ids[0], GID: ids[1]}
	if len(ids) > 2 {
		user.SupplementalGroups = ids[2:]
	}
	return &v1.ContainerUser{Linux: user}
}
