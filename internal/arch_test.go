// Package internal_test holds the house to its plan: who may import whom, what pure rooms may not
// touch, and how long a file or function may get.
package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "podrun.io/podrun/"

// room is what a package may do.
type room struct {
	// imports are the rooms that it may import; "*" is any.
	imports string
	// pure: no context, clock, log, lock, goroutine or I/O, but in the files named by touches. For
	// other rooms, pureFiles name the files that this holds for.
	pure               bool
	touches, pureFiles string
}

// rooms are all packages of the house but main, keyed by directory. A new room is a new line here.
var rooms = map[string]room{
	"cmd":                                  {imports: "*"},
	"internal/agent":                       {imports: "*"},
	"internal/agent/connection":            {imports: "agent/owner agent/plugins checkpoint checkpoint/layout device embedded image oci pod runtime runtime/checkpointed runtime/containerd sandbox sys sys/errtext sys/pidfd"},
	"internal/agent/deadline":              {},
	"internal/agent/directories":           {imports: "checkpoint/layout sys sys/mounted sys/own"},
	"internal/agent/images":                {imports: "checkpoint/layout manifest pod sys containerlog/orphangc gc runtime workload workload/revisions workload/schedule"},
	"internal/agent/node":                  {imports: "cgroup device device/cpus network pod runtime/containerd sys manifest/decode sys/fileerror"},
	"internal/agent/nodeinfo":              {imports: "checkpoint/layout containerlog containerlog/cri event gc manifest pod relist runtime server server/metrics stats stats/disk status status/plugins sys"},
	"internal/agent/owner":                 {imports: "agent/deadline checkpoint/layout pod reconcile sys sys/own sys/watch workload/cronjobs workload/revisions"},
	"internal/agent/problems":              {imports: "checkpoint/layout manifest pod sys"},
	"internal/agent/plugins":               {imports: "checkpoint/layout device device/plugins device/podresources pluginregistry sys/own volume/mounts"},
	"internal/agent/record":                {imports: "agent/owner checkpoint manifest/rollback pod reconcile sys/clock sys/errtext workload workload/cronjobs workload/jobs workload/revisions"},
	"internal/agent/result":                {imports: "manifest plan pod status workload workload/jobs timeline", pureFiles: "result.go"},
	"internal/agent/sdnotify":              {imports: "pod"},
	"internal/agent/selection":             {imports: "agent/owner checkpoint pod runtime"},
	"internal/agent/shutdown":              {imports: "nodeshutdown pod reconcile"},
	"internal/agent/sources":               {imports: "agent/owner agent/record checkpoint checkpoint/layout manifest manifest/changes manifest/mux manifest/source manifest/source/exec manifest/source/file manifest/source/http manifest/support manifest/podsecurity manifest/validate pod sys workload"},
	"internal/pod":                         {pure: true, imports: "pod/quantity pod/storageclass"},
	"internal/pod/storageclass":            {pure: true},
	"internal/pod/quantity":                {pure: true},
	"internal/checkpoint/layout":           {pure: true, imports: "pod"},
	"internal/plan":                        {pure: true, imports: "pod"},
	"internal/plan/storage":                {pure: true, imports: "pod"},
	"internal/status":                      {pure: true, touches: "file.go workloads.go", imports: "pod plan manifest checkpoint/layout sys workload workload/cronjobs workload/revisions"},
	"internal/oci/env":                     {pure: true, imports: "pod"},
	"internal/oci":                         {pure: true, imports: "pod oci/env"},
	"internal/sys":                         {},
	"internal/sys/treetest":                {},
	"internal/sys/heap":                    {},
	"internal/sys/clock":                   {},
	"internal/sys/memo":                    {},
	"internal/sys/pace":                    {},
	"internal/sys/patience":                {},
	"internal/sys/activity":                {},
	"internal/sys/shortage":                {},
	"internal/sys/executable":              {imports: "sys"},
	"internal/sys/errtext":                 {},
	"internal/sys/excerpt":                 {},
	"internal/sys/fileerror":               {},
	"internal/sys/socket":                  {imports: "sys/excerpt sys/shortage"},
	"internal/sys/own":                     {},
	"internal/cgroup":                      {},
	"internal/sys/mounted":                 {},
	"internal/sys/watch":                   {},
	"internal/sys/pidfd":                   {},
	"internal/manifest":                    {pure: true, touches: "desired.go", imports: "pod pod/storageclass manifest/decode manifest/defaults manifest/documents manifest/kinds manifest/objects manifest/order manifest/support manifest/podsecurity manifest/validate manifest/validate/objects manifest/validate/workloads sys/errtext workload workload/revisions"},
	"internal/manifest/defaults":           {pure: true},
	"internal/manifest/edits":              {pure: true},
	"internal/manifest/order":              {pure: true, imports: "pod"},
	"internal/manifest/validate":           {pure: true, imports: "manifest/validate/devices pod oci/env"},
	"internal/manifest/validate/devices":   {pure: true},
	"internal/manifest/validate/objects":   {pure: true, imports: "manifest/validate pod pod/storageclass"},
	"internal/manifest/objects":            {pure: true, imports: "manifest/decode manifest/defaults manifest/support manifest/validate/objects pod pod/storageclass"},
	"internal/manifest/podsecurity":        {pure: true, imports: "manifest/validate"},
	"internal/manifest/minimal":            {pure: true, imports: "manifest manifest/defaults pod"},
	"internal/manifest/source":             {imports: "manifest manifest/decode manifest/reader manifest/support manifest/podsecurity manifest/validate sys"},
	"internal/manifest/source/exec":        {imports: "manifest manifest/decode manifest/source manifest/support manifest/podsecurity manifest/validate sys"},
	"internal/manifest/source/file":        {imports: "pod sys sys/watch manifest manifest/decode manifest/reader manifest/support manifest/podsecurity manifest/validate sys/errtext sys/own workload"},
	"internal/manifest/source/http":        {imports: "manifest manifest/decode manifest/source manifest/support manifest/podsecurity manifest/validate sys sys/errtext sys/fileerror", pureFiles: "check.go redact.go"},
	"internal/manifest/decode":             {imports: "pod/quantity"},
	"internal/manifest/support":            {imports: "manifest/decode manifest/kinds pod/quantity"},
	"internal/manifest/verdict":            {imports: "manifest manifest/support manifest/podsecurity manifest/validate oci workload"},
	"internal/relist":                      {imports: "pod runtime", pureFiles: "diff.go"},
	"internal/server/credentials":          {imports: "sys sys/errtext sys/fileerror"},
	"internal/server/yielding":             {imports: "sys/shortage"},
	"internal/server/podlog":               {imports: "status/summary"},
	"internal/server/sparkline":            {imports: "stats/history"},
	"internal/server/metrics":              {imports: "cgroup pod manifest probe relist gc runtime stats status/plugins sys workload workload/cronjobs workload/jobs"},
	"internal/cli":                         {imports: "cgroup manifest/decode oci status/summary"},
	"internal/cli/printers":                {imports: "cli status/summary manifest manifest/changes manifest/edits manifest/minimal pod sys/fileerror pod/quantity"},
	"internal/cli/query":                   {imports: "checkpoint cli cli/printers status/summary event checkpoint/layout manifest manifest/decode manifest/rollback pod status sys/watch workload workload/revisions"},
	"internal/cli/names":                   {imports: "agent/problems agent/sources checkpoint/layout cli cli/query pod status status/summary volume/claims workload"},
	"internal/cli/logs":                    {imports: "cli cli/printers cli/query status/summary containerlog containerlog/cri plan pod"},
	"internal/cli/describe":                {imports: "cli cli/printers cli/query status/contents status/plugins status/summary containerlog containerlog/cri event checkpoint/layout manifest pod workload workload/cronjobs workload/jobs workload/revisions"},
	"internal/cli/progress":                {imports: "cli status/summary pod"},
	"internal/cli/report":                  {imports: "cli cli/printers status/summary containerlog containerlog/cri checkpoint/layout manifest pod sys sys/activity volume/directory workload/jobs"},
	"internal/cli/stream":                  {imports: "cli cli/query status/summary containerlog checkpoint/layout pod runtime sys/shortage"},
	"internal/cli/cp":                      {imports: "cli cli/query pod sys"},
	"internal/cli/top":                     {imports: "agent/sources checkpoint/layout cgroup cli cli/ask cli/printers oci status/summary sys"},
	"internal/cli/lint":                    {imports: "cli cli/convert cli/printers cli/query cli/query status/summary manifest manifest/decode manifest/source/file manifest/support manifest/podsecurity manifest/validate pod pod/storageclass sys sys/fileerror volume/persistent workload"},
	"internal/cli/convert":                 {imports: "manifest/decode manifest/minimal pod sys/excerpt pod/quantity"},
	"internal/cli/flags":                   {imports: "agent agent/connection agent/node agent/shutdown agent/sources cgroup containerlog gc checkpoint/layout manifest/support manifest/podsecurity manifest/validate oci pod server sys/excerpt sys/fileerror"},
	"internal/cli/request":                 {imports: "cli cli/query status/summary pod status workload workload/cronjobs workload/revisions"},
	"internal/cli/ask":                     {imports: "cli"},
	"internal/cli/timeline":                {imports: "cli cli/ask timeline"},
	"internal/cli/pending":                 {imports: "agent agent/owner cli cli/flags cli/names cli/printers cli/query manifest manifest/changes pod"},
	"internal/cli/wait":                    {imports: "cli cli/pending cli/printers cli/query manifest pod status status/summary workload workload/jobs workload/revisions"},
	"internal/cli/portforward":             {imports: "checkpoint checkpoint/layout cli/query network pod sandbox"},
	"internal/cli/list":                    {imports: "agent/problems checkpoint/layout cli cli/flags cli/names cli/printers cli/query manifest manifest/minimal pod status status/plugins status/summary volume/claims workload workload/cronjobs workload/jobs"},
	"internal/cli/once":                    {imports: "agent agent/deadline agent/result cli cli/agenterror cli/printers cli/progress cli/query cli/report manifest pod status/summary workload timeline"},
	"internal/cli/agenterror":              {imports: "agent agent/connection agent/owner agent/sources cli embedded reconcile sys/own"},
	"internal/cli/version":                 {imports: "agent/connection cli/printers"},
	"internal/cli/images":                  {imports: "status/summary cli cli/printers cli/progress pod runtime runtime/containerd/images sys/fileerror"},
	"internal/status/contents":             {pure: true, imports: "pod"},
	"internal/status/summary":              {pure: true, imports: "pod manifest"},
	"internal/status/overview":             {imports: "manifest workload workload/cronjobs workload/jobs"},
	"internal/status/plugins":              {imports: "checkpoint checkpoint/layout device device/plugins pluginregistry volume/csi"},
	"internal/server":                      {imports: "manifest pod server/chart server/credentials server/detail server/podlog server/rows server/sparkline server/yielding stats stats/history status/overview status/summary sys timeline timeline/day workload"},
	"internal/stats/history":               {imports: "stats"},
	"internal/stats":                       {imports: "cgroup sys oci stats/disk pod"},
	"internal/timeline":                    {imports: "pod timeline/day", pureFiles: "path.go"},
	"internal/timeline/day":                {imports: "manifest manifest/edits pod"},
	"internal/server/rows":                 {imports: "server/sparkline status/summary workload"},
	"internal/server/chart":                {pure: true, imports: "timeline timeline/day"},
	"internal/server/detail":               {imports: "manifest manifest/changes manifest/edits manifest/minimal manifest/rollback pod status/contents status/summary sys/memo workload/revisions"},
	"internal/event":                       {imports: "pod checkpoint/layout sys sys/errtext sys/excerpt", pureFiles: "record.go"},
	"internal/probe":                       {imports: "pod oci/env runtime sys/excerpt sys/shortage", pureFiles: "tally.go"},
	"internal/reconcile":                   {imports: "pod plan manifest reconcile/admission reconcile/eviction reconcile/execute reconcile/lifecycle reconcile/publish reconcile/pull reconcile/record reconcile/revision relist runtime sys/shortage timeline", pureFiles: "next.go"},
	"internal/reconcile/admission":         {imports: "manifest/decode pod plan runtime"},
	"internal/reconcile/revision":          {imports: "pod plan manifest runtime", pureFiles: "state.go"},
	"internal/reconcile/record":            {imports: "pod plan runtime reconcile/revision sys/errtext"},
	"internal/reconcile/lifecycle":         {imports: "pod plan probe runtime reconcile/record reconcile/revision"},
	"internal/reconcile/pull":              {imports: "pod plan runtime runtime/trace reconcile/record reconcile/revision timeline"},
	"internal/reconcile/eviction":          {imports: "pod plan/storage runtime"},
	"internal/reconcile/publish":           {imports: "pod plan manifest runtime status reconcile/admission reconcile/lifecycle reconcile/revision sys/errtext timeline"},
	"internal/reconcile/execute":           {imports: "pod oci/env plan manifest runtime runtime/trace reconcile/admission reconcile/lifecycle reconcile/pull reconcile/record reconcile/revision sys/patience sys/shortage timeline"},
	"internal/network":                     {imports: "checkpoint/layout sys pod network/bridge network/cni network/netdev network/portmap"},
	"internal/network/bridge":              {imports: "checkpoint/layout sys sys/pace pod network/firewall network/netdev network/nft network/portmap network/records"},
	"internal/network/firewall":            {imports: "network/nft sys"},
	"internal/network/portmap":             {imports: "checkpoint/layout sys pod network/netdev network/nft network/records"},
	"internal/network/cni":                 {imports: "sys pod network/netdev network/records"},
	"internal/network/records":             {imports: "checkpoint/layout sys network/nft"},
	"internal/network/nft":                 {},
	"internal/network/netdev":              {imports: "sys sys/shortage"},
	"internal/network/nettest":             {imports: "pod"},
	"internal/sandbox":                     {imports: "pod checkpoint/layout sys cgroup oci runtime/trace"},
	"internal/volume":                      {imports: "pod oci oci/env checkpoint/layout sys sys/mounted runtime volume/csi volume/directory volume/etc volume/filled volume/fsgroup volume/mounts volume/persistent volume/provision volume/subpath"},
	"internal/volume/claims":               {imports: "checkpoint/layout pod sys sys/mounted volume/csi volume/directory volume/provision"},
	"internal/volume/directory":            {imports: "checkpoint/layout pod sys"},
	"internal/volume/subpath":              {imports: "sys"},
	"internal/volume/provision":            {imports: "checkpoint/layout pod pod/storageclass sys sys/mounted volume/csi volume/directory volume/persistent"},
	"internal/volume/csi":                  {imports: "checkpoint/layout pluginregistry pod runtime sys sys/errtext sys/pace sys/socket volume/csi/wire volume/mounts volume/persistent"},
	"internal/volume/csi/wire":             {},
	"internal/volume/persistent":           {pure: true, imports: "pod"},
	"internal/volume/fsgroup":              {imports: "sys sys/patience"},
	"internal/volume/filled":               {imports: "checkpoint/layout sys"},
	"internal/volume/mounts":               {imports: "pod sys"},
	"internal/volume/etc":                  {imports: "pod checkpoint/layout sys"},
	"internal/device":                      {imports: "pod checkpoint/layout device/cpus sys sys/own", pureFiles: "share.go"},
	"internal/device/cpus":                 {},
	"internal/pluginregistry":              {imports: "checkpoint/layout sys sys/errtext sys/pace sys/socket sys/watch"},
	"internal/device/podresources":         {imports: "checkpoint/layout device pod sys/socket"},
	"internal/device/plugins":              {imports: "checkpoint/layout device pod sys sys/pace sys/socket"},
	"internal/stats/disk":                  {imports: "pod checkpoint/layout sys runtime volume/directory"},
	"internal/gc":                          {imports: "pod runtime sys", pureFiles: "select.go"},
	"internal/nodeshutdown":                {imports: "sys"},
	"internal/image":                       {imports: "pod runtime/trace sys sys/errtext sys/fileerror"},
	"internal/image/decompress":            {},
	"internal/image/registryhosts":         {},
	"internal/network/dns":                 {imports: "pod checkpoint"},
	"internal/embedded":                    {imports: "cgroup checkpoint/layout embedded/runcshim embedded/transfer image/decompress sys sys/executable sys/heap sys/own sys/shortage secretenv"},
	"internal/embedded/transfer":           {imports: "image/registryhosts"},
	"internal/embedded/runcshim":           {imports: "sys/shortage"},
	"internal/embedded/runcshim/program":   {imports: "embedded/runcshim"},
	"internal/secretenv":                   {imports: "checkpoint/layout sys sys/executable"},
	"internal/sys/stdin":                   {},
	"internal/sys/pipes":                   {imports: "sys"},
	"internal/shim":                        {imports: "sys"},
	"internal/checkpoint":                  {imports: "pod checkpoint/layout sys sys/errtext sys/mounted"},
	"internal/runtime":                     {imports: "pod"},
	"internal/runtime/trace":               {},
	"internal/runtime/checkpointed":        {imports: "pod checkpoint/layout sys checkpoint runtime sys/errtext sys/mounted"},
	"internal/runtime/fake":                {imports: "pod checkpoint/layout checkpoint runtime runtime/checkpointed runtime/trace"},
	"internal/runtime/runtimetest":         {imports: "pod runtime runtime/trace test/testimage"},
	"internal/workload":                    {pure: true, imports: "pod workload/cronjobs workload/jobs workload/revisions workload/rollouts"},
	"internal/workload/revisions":          {pure: true, imports: "pod"},
	"internal/workload/rollouts":           {pure: true},
	"internal/workload/cronjobs":           {pure: true, imports: "workload/jobs workload/schedule"},
	"internal/workload/schedule":           {pure: true},
	"internal/workload/jobs":               {pure: true, imports: "pod"},
	"internal/manifest/changes":            {pure: true, imports: "manifest manifest/edits pod workload"},
	"internal/manifest/documents":          {pure: true, imports: "manifest/defaults manifest/validate/workloads pod workload"},
	"internal/manifest/kinds":              {pure: true, imports: "manifest/decode"},
	"internal/manifest/mux":                {imports: "manifest manifest/rollback manifest/rollout pod workload"},
	"internal/manifest/rollback":           {pure: true, imports: "manifest pod workload workload/revisions"},
	"internal/manifest/rollout":            {pure: true, imports: "manifest manifest/rollback pod workload workload/revisions workload/rollouts"},
	"internal/manifest/reader":             {imports: "manifest"},
	"internal/manifest/validate/workloads": {pure: true, imports: "workload/schedule"},

	"internal/runtime/containerd":            {imports: "device image checkpoint/layout oci pod runtime runtime/containerd/daemon runtime/containerd/exec runtime/containerd/images runtime/containerd/instance runtime/containerd/legacy runtime/containerd/orphan runtime/containerd/resources runtime/containerd/shimpool runtime/containerd/start runtime/containerd/stop"},
	"internal/runtime/containerd/daemon":     {imports: "runtime"},
	"internal/runtime/containerd/images":     {imports: "pod runtime runtime/containerd/daemon runtime/containerd/images/fetched runtime/containerd/images/pull runtime/containerd/images/unpacked checkpoint/layout image image/decompress"},
	"internal/runtime/containerd/daemontest": {imports: "embedded checkpoint/layout test/testcontainerd test/testimage"},
	"internal/runtime/containerd/instance":   {imports: "cgroup pod runtime runtime/containerd/daemon runtime/containerd/images checkpoint/layout sys sys/stdin oci secretenv"},
	"internal/runtime/containerd/orphan":     {imports: "oci pod runtime runtime/containerd/daemon runtime/containerd/instance shim sys"},
	"internal/runtime/containerd/resources":  {imports: "cgroup oci pod runtime runtime/containerd/daemon runtime/containerd/instance runtime/containerd/orphan sys sys/memo"},
	"internal/runtime/containerd/stop":       {imports: "oci pod runtime/containerd/daemon runtime/containerd/instance runtime/containerd/orphan"},
	"internal/runtime/containerd/exec":       {imports: "checkpoint/layout oci runtime runtime/containerd/daemon runtime/containerd/instance secretenv sys sys/activity sys/pipes sys/stdin"},
	"internal/runtime/containerd/start":      {imports: "cgroup device checkpoint/layout network oci pod runtime runtime/containerd/daemon runtime/containerd/images/unpacked runtime/containerd/instance runtime/containerd/resources runtime/containerd/shimpool runtime/containerd/stop sandbox secretenv sys"},
	"internal/runtime/containerd/legacy":     {imports: "checkpoint checkpoint/layout pod runtime/containerd/daemon runtime/containerd/images/unpacked runtime/containerd/instance sandbox sys"},
	"internal/runtime/containerd/shimpool":   {imports: "checkpoint/layout pod runtime/containerd/daemon runtime/containerd/instance runtime/containerd/orphan shim sys sys/memo"},

	"internal/runtime/containerd/images/accounts": {imports: "pod sys"},
	"internal/runtime/containerd/images/unpacked": {imports: "pod runtime runtime/containerd/daemon runtime/containerd/images/accounts checkpoint/layout sys sys/own sys/memo oci"},
	"internal/runtime/containerd/images/fetched":  {imports: "runtime/containerd/daemon checkpoint/layout sys sys/own"},
	"internal/runtime/containerd/images/pull":     {imports: "pod runtime runtime/containerd/daemon runtime/containerd/images/fetched runtime/containerd/images/unpacked image image/registryhosts"},

	"internal/containerlog":          {imports: "containerlog/cri containerlog/links containerlog/orphangc pod checkpoint/layout sys/own sys/shortage sys/watch sys"},
	"internal/containerlog/cri":      {imports: "sys"},
	"internal/containerlog/links":    {imports: "pod checkpoint/layout sys/own"},
	"internal/containerlog/orphangc": {imports: "containerlog/links pod checkpoint/layout runtime sys/mounted"},

	"internal/test":                   {},
	"internal/test/testcsi":           {imports: "checkpoint/layout sys"},
	"internal/test/testcsi/driver":    {imports: "test/testcsi"},
	"internal/test/testimage":         {},
	"internal/test/testimage/mkimage": {imports: "test/testimage"},
	"internal/test/testcontainerd":    {},
	"internal/test/usage":             {},
	"hack/compress":                   {},
	"hack/pages":                      {},
	"hack/plugins/csimock":            {},
	"internal/test/testlogind":        {},
	"hack/bench":                      {imports: "*"},
	"hack/bench/sections":             {},
	"hack/bench/viewer":               {},
	"e2e":                             {imports: "test/testimage test/testcontainerd test/testlogind test/usage"},
	"vm":                              {imports: "test/testimage"},
}

// only are the packages that may be imported, tests apart, from the named rooms alone.
var only = map[string]string{
	"github.com/containerd/containerd/v2/client":   "internal/runtime/containerd internal/runtime/containerd/exec internal/runtime/containerd/daemon internal/runtime/containerd/images internal/runtime/containerd/images/pull internal/runtime/containerd/images/unpacked internal/runtime/containerd/daemontest hack/bench",
	"github.com/containerd/containerd/v2/cmd/":     "internal/embedded internal/embedded/runcshim",
	"github.com/containerd/containerd/v2/plugins/": "internal/embedded",
	"github.com/containerd/containerd/api/":        "internal/runtime/containerd internal/runtime/containerd/shimpool internal/runtime/containerd/start internal/runtime/containerd/exec internal/runtime/containerd/stop internal/runtime/containerd/resources internal/runtime/containerd/orphan internal/runtime/containerd/instance internal/runtime/containerd/daemontest internal/embedded internal/embedded/runcshim internal/embedded/transfer hack/bench",
	// sys.Program runs what is not podrun's own; the others run this program, or look for runc.
	"os/exec": "internal/sys internal/embedded internal/secretenv internal/test/testlogind internal/test/testimage internal/test/testcontainerd internal/network/nettest hack/bench",

	"github.com/spf13/cobra":                           "cmd hack/pages",
	"github.com/prometheus/client":                     "internal/server/metrics",
	"github.com/prometheus/procfs":                     "internal/sys internal/sys/heap",
	"github.com/godbus/dbus":                           "internal/cgroup internal/nodeshutdown internal/test/testlogind",
	"github.com/coreos/go-systemd/":                    "internal/agent/sdnotify internal/cgroup",
	"github.com/fsnotify/fsnotify":                     "internal/sys/watch",
	"github.com/vishvananda/":                          "internal/network internal/network/bridge internal/network/portmap internal/network/netdev internal/network/nettest internal/network/nft",
	"github.com/containernetworking/":                  "internal/network/cni",
	"github.com/google/nftables":                       "internal/network/bridge internal/network/firewall internal/network/portmap internal/network/nft internal/network/records internal/network/nettest",
	"github.com/mdlayher/":                             "internal/network/nft",
	"github.com/google/go-containerregistry/":          "internal/test/testimage hack/bench",
	"github.com/containerd/containerd/v2/core/remotes": "internal/runtime/containerd/images/pull internal/image internal/image/registryhosts internal/embedded/transfer",
}

// impure may not be imported where nothing but judgement is at home.
var impure = []string{"context", "log", "log/slog", "os", "os/exec", "net", "net/http", "sync", "sync/atomic", "math/rand", "math/rand/v2"}

// owned are the rooms in which every path is the kernel's, podrun's own or one that whoever started podrun names. All
// others may handle paths at which a container, an image or another user puts what it likes. They open files and walk
// trees by internal/sys, or say beside the call why nobody else can write there: "// trusted: ...".
var owned = map[string]string{
	"internal/agent/connection":          "podrun's own; containerd's socket",
	"internal/agent/directories":         "podrun's own",
	"internal/agent/images":              "podrun's own; archives are opened by internal/sys",
	"internal/agent/owner":               "podrun's own",
	"internal/agent/problems":            "podrun's own",
	"internal/agent/sources":             "podrun's own",
	"internal/cgroup":                    "the kernel's",
	"internal/cli":                       "the user's",
	"internal/cli/flags":                 "the user's",
	"internal/cli/images":                "the user's",
	"internal/cli/lint":                  "the user's",
	"internal/cli/printers":              "the user's",
	"internal/cli/query":                 "podrun's own",
	"internal/cli/report":                "the user's",
	"internal/device":                    "podrun's own",
	"internal/device/plugins":            "podrun's own",
	"internal/embedded":                  "podrun's own",
	"internal/embedded/runcshim":         "podrun's own",
	"internal/event":                     "podrun's own",
	"internal/gc":                        "podrun's own",
	"internal/manifest/source":           "the administrator's",
	"internal/manifest/source/file":      "the administrator's",
	"internal/network/bridge":            "the kernel's",
	"internal/network/cni":               "the administrator's",
	"internal/network/netdev":            "the kernel's",
	"internal/network/portmap":           "the kernel's; podrun's own",
	"internal/network/records":           "podrun's own",
	"internal/pluginregistry":            "root's alone, and only sockets",
	"internal/runtime/containerd/legacy": "podrun's own",
	"internal/sandbox":                   "podrun's own",
	"internal/server":                    "podrun's own",
	"internal/server/credentials":        "the administrator's",
	"internal/shim":                      "the kernel's; podrun's own",
	"internal/status":                    "podrun's own",
	"internal/volume/csi":                "podrun's own",
	"internal/volume/provision":          "podrun's own",
	"internal/sys":                       "opens files for all others",
	"internal/sys/executable":            "podrun's own",
}

// opening are the calls that wait for a FIFO, start a device or read without end, and the one that looks before them.
var opening = []string{
	"os.Open", "os.OpenFile", "os.ReadFile", "os.Stat", "os.Create", "os.WriteFile", "os.Truncate", "os.Chmod", "os.Chown", "unix.Open",
	"unix.Openat", "unix.Openat2", "unix.Stat", "filepath.EvalSymlinks",
}

// walking are the calls that a tree of many directories in each other makes take a descriptor for each, or the square
// of their number in time, and those that another process can lead astray. sys.WalkTree and sys.RemoveTree are for what
// containers make.
var walking = []string{"os.RemoveAll", "root.RemoveAll", "fs.WalkDir", "filepath.WalkDir", "filepath.Walk", "os.CopyFS", "os.DirFS"}

// mounting are the calls that change what is mounted: internal/sys has them, with nosuid, nodev and noexec unless its
// caller allows more.
var mounting = []string{
	"unix.Mount", "unix.Unmount", "unix.MoveMount", "unix.OpenTree", "unix.MountSetattr", "unix.Fsopen", "unix.Fsmount",
	"unix.PivotRoot", "syscall.Mount", "syscall.Unmount", "syscall.PivotRoot", "mount.All", "mount.UnmountAll",
	"mount.Unmount", "mount.WithTempMount",
}

// removers are the rooms that open only podrun's own files, but remove what containers made.
var removers = []string{"internal/checkpoint", "internal/runtime/checkpointed"}

// source is one file of the house.
type source struct {
	dir, name string
	test      bool
	fset      *token.FileSet
	file      *ast.File
}

// sources parses the whole project.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "deps" || path == "../hack/oracle" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		s := source{name: d.Name(), test: strings.HasSuffix(path, "_test.go"), fset: token.NewFileSet()}
		if s.dir, err = filepath.Rel("..", filepath.Dir(path)); err != nil {
			return err
		}
		s.file, err = parser.ParseFile(s.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		out = append(out, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// errorf reports at a place in the file.
func (s source) errorf(t *testing.T, at token.Pos, format string, args ...any) {
	t.Helper()
	t.Errorf("%s: "+format, append([]any{s.fset.Position(at)}, args...)...)
}

// pure reports whether the file may hold nothing but judgement.
func (s source) pure() bool {
	r := rooms[s.dir]
	if r.pure {
		return !slices.Contains(strings.Fields(r.touches), s.name)
	}
	return slices.Contains(strings.Fields(r.pureFiles), s.name)
}

func TestEveryPackageIsARoomAndSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if _, ok := rooms[s.dir]; !ok && s.dir != "." && s.dir != "internal" {
			s.errorf(t, s.file.Package, "%s is no room of the house; if it should be, add it to rooms", s.dir)
		}
		documented[s.dir] = documented[s.dir] || s.file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment", dir)
		}
	}
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		r := rooms[s.dir]
		for _, spec := range s.file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if ours, ok := strings.CutPrefix(path, module+"internal/"); ok && s.dir != "." {
				if r.imports != "*" && !slices.Contains(strings.Fields(r.imports), ours) {
					s.errorf(t, spec.Pos(), "%s may not import %s", s.dir, ours)
				}
			}
			for prefix, allowed := range only {
				if strings.HasPrefix(path, prefix) && !slices.Contains(strings.Fields(allowed), s.dir) {
					s.errorf(t, spec.Pos(), "%s is for %s only", path, allowed)
				}
			}
			if s.pure() && slices.Contains(impure, path) {
				s.errorf(t, spec.Pos(), "%s in a pure file", path)
			}
		}
	}
}

func TestPureFilesAndEntryPoints(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if s.pure() {
					s.errorf(t, n.Pos(), "goroutine in a pure file")
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok {
					break
				}
				name := x.Name + "." + n.Sel.Name
				if s.pure() && slices.Contains([]string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After"}, name) {
					s.errorf(t, n.Pos(), "%s in a pure file", name)
				}
				if name == "os.Exit" && s.file.Name.Name != "main" {
					s.errorf(t, n.Pos(), "os.Exit outside main")
				}
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					s.errorf(t, n.Pos(), "init function")
				}
			}
			return true
		})
	}
}

// TestModesOfDirectories: whose mode is not root's alone is in layout's table, or here.
func TestModesOfDirectories(t *testing.T) {
	elsewhere := map[string]string{"internal/cgroup": "process.go", "internal/volume": "hostpath.go", "internal/cli/cp": "out.go"} // not podrun's own
	for _, s := range sources(t) {
		if s.test || elsewhere[s.dir] == s.name || !strings.HasPrefix(s.dir, "internal/") || strings.HasSuffix(s.dir, "test") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			callee, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Mkdir", "MkdirAll", "MkdirOwn", "Mkdirat", "LockDir", "TryLockDir"}, callee.Sel.Name) {
				return true
			}
			for _, arg := range call.Args {
				if mode, ok := arg.(*ast.BasicLit); ok && mode.Kind == token.INT && mode.Value != "0o700" {
					s.errorf(t, mode.Pos(), "a directory's mode %s: use layout's table", mode.Value)
				}
			}
			return true
		})
	}
}

// isCall reports whether e is a call of a method or a package's function with one of the names.
func isCall(e ast.Expr, names ...string) (*ast.CallExpr, bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return nil, false
	}
	callee, ok := call.Fun.(*ast.SelectorExpr)
	return call, ok && slices.Contains(names, callee.Sel.Name)
}

// TestQuantitiesAreParsedInOnePlace: what anybody may have written as a quantity is parsed within limits.
func TestQuantitiesAreParsedInOnePlace(t *testing.T) {
	for _, s := range sources(t) {
		if !s.isProduct() || s.dir == "internal/pod/quantity" || s.dir == "internal/cli/flags" { // a flag is its user's
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if call, is := isCall(e, "ParseQuantity", "MustParse"); ok && is && len(call.Args) == 1 {
				_, constant := call.Args[0].(*ast.BasicLit)
				if of, isName := call.Fun.(*ast.SelectorExpr).X.(*ast.Ident); isName && of.Name == "resource" && !constant {
					s.errorf(t, n.Pos(), "use quantity.Parse")
				}
			}
			return true
		})
	}
}

// isProduct reports whether the file is part of podrun itself.
func (s source) isProduct() bool {
	return !s.test && (s.dir == "cmd" || strings.HasPrefix(s.dir, "internal/")) && !strings.Contains(s.dir, "test")
}

// byText are the files and packages that may decide by the text of an error: the texts of containerd, which become
// kinds of errors there, the comparison with what has been logged, and the removal of Secrets from a text.
var byText = []string{"internal/runtime/containerd/daemon", "internal/sys/errtext", "internal/secretenv/hush.go"}

// TestErrorsAreKinds: nothing compares or searches the text of an error, or a variable that has it. To print it is no
// decision.
func TestErrorsAreKinds(t *testing.T) {
	deciding := []string{
		"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "EqualFold", "Index", "CutPrefix", "CutSuffix",
		"MatchString", "FindString", "FindStringSubmatch", "FindAllString", "FindAllStringSubmatch", "FindStringIndex",
	}
	for _, s := range sources(t) {
		if !s.isProduct() || slices.Contains(byText, s.dir) || slices.Contains(byText, s.dir+"/"+s.name) {
			continue
		}
		for _, d := range s.file.Decls {
			texts := map[string]bool{} // the variables of the function that have the text of an error
			isText := func(e ast.Expr) bool {
				if call, is := isCall(e, "Error"); is {
					return len(call.Args) == 0
				}
				v, ok := e.(*ast.Ident)
				return ok && texts[v.Name]
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for i := 0; len(n.Lhs) == len(n.Rhs) && i < len(n.Lhs); i++ {
						if v, ok := n.Lhs[i].(*ast.Ident); ok && isText(n.Rhs[i]) {
							texts[v.Name] = true
						}
					}
				case *ast.BinaryExpr:
					isNil := func(e ast.Expr) bool { v, ok := e.(*ast.Ident); return ok && v.Name == "nil" }
					if (n.Op == token.EQL || n.Op == token.NEQ) && (isText(n.X) || isText(n.Y)) && !isNil(n.Y) {
						s.errorf(t, n.Pos(), "compares the text of an error; compare its kind")
					}
				case *ast.SwitchStmt:
					if n.Tag != nil && isText(n.Tag) {
						s.errorf(t, n.Pos(), "decides by the text of an error; use its kind")
					}
				case *ast.CallExpr:
					if call, is := isCall(n, deciding...); is && slices.ContainsFunc(call.Args, isText) {
						s.errorf(t, n.Pos(), "decides by the text of an error; use its kind")
					}
				}
				return true
			})
		}
	}
}

func TestRegularExpressionsAreCompiledOnce(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				callee, ok := n.(*ast.SelectorExpr)
				if !ok || callee.Sel.Name != "MustCompile" && callee.Sel.Name != "Compile" {
					return true
				}
				if x, ok := callee.X.(*ast.Ident); ok && x.Name == "regexp" {
					s.errorf(t, n.Pos(), "compiled at each call of %s; make it a variable of the package", f.Name.Name)
				}
				return true
			})
		}
	}
}

// isOwned reports whether a room handles no path of strangers: one of owned, those below internal/sys, and tests' helpers.
func isOwned(dir string) bool {
	return owned[dir] != "" || strings.HasPrefix(dir, "internal/sys/") || strings.HasPrefix(dir, "internal/test/") || strings.HasSuffix(dir, "test")
}

func TestExposedPathsAreOpenedInOneWay(t *testing.T) {
	for _, s := range sources(t) {
		var refused []string
		switch {
		case slices.Contains(removers, s.dir):
			refused = walking
		case !isOwned(s.dir) && !strings.HasPrefix(s.dir, "hack/"):
			refused = slices.Concat(opening, walking)
		}
		if s.test || len(refused) == 0 {
			continue
		}
		trusted := map[int]bool{}
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "// trusted: ") {
					line := s.fset.Position(c.Pos()).Line
					trusted[line], trusted[line+1] = true, true // at the end of the call's line, or above it
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := call.X.(*ast.Ident)
			if ok && slices.Contains(refused, x.Name+"."+call.Sel.Name) && !trusted[s.fset.Position(n.Pos()).Line] {
				s.errorf(t, n.Pos(), "%s.%s of what others may write; use sys.OpenRegular, ReadRegular, WalkTree or RemoveTree", x.Name, call.Sel.Name)
			}
			return true
		})
	}
}

func TestOnePlaceMounts(t *testing.T) {
	// The second one has containerd's library mount what its snapshotters give.
	places := []string{"internal/sys/mount.go", "internal/runtime/containerd/images/unpacked/mount.go"}
	for _, s := range sources(t) {
		if !s.isProduct() || slices.Contains(places, filepath.Join(s.dir, s.name)) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := call.X.(*ast.Ident); ok && slices.Contains(mounting, x.Name+"."+call.Sel.Name) {
				s.errorf(t, n.Pos(), "%s.%s: use what internal/sys/mount.go has", x.Name, call.Sel.Name)
			}
			return true
		})
	}
}
