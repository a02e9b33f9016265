package summary

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Level is how well a pod is.
type Level string

// The levels of pods. One that waits is on its way, or is not ready.
const (
	Well    Level = "well"
	Waiting Level = "waiting"
	Ended   Level = "ended"
	Ill     Level = "ill"
)

// LevelOf returns how well a pod is by its state in a word.
func LevelOf(state string) Level {
	switch {
	case state == string(v1.PodRunning):
		return Well
	case slices.Contains([]string{string(v1.PodSucceeded), "Completed"}, state):
		return Ended
	case slices.Contains([]string{
		"Pending", "ContainerCreating", "PodInitializing", "Terminating", "NotReady", "WaitingForPods",
	}, state),
		len(state) > 5 && state[:5] == "Init:" && state[5] >= '0' && state[5] <= '9':
		return Waiting
	}
	return Ill
}

// Level returns how well the pod is. One that runs and is not ready waits.
func (s Summary) Level() Level {
	level := LevelOf(s.Text)
	if level == Well && s.Ready < s.Containers {
		return Waiting
	}
	return level
}
