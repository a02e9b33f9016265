#!/usr/bin/env bash
# Runs the manifests that kubeadm writes under bin/podrun, with Kubernetes' own programs and etcd, which it builds of the
# module in hack/controlplane. FLAGS are for go test.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "kubeadm's manifests need root: sudo make kubeadm" >&2; exit 1; }

bin=$PWD/bin/controlplane
export CGO_ENABLED=0
version=$(go list -C hack/controlplane -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}
about=k8s.io/component-base/version
# kubeadm and the apiserver derive what they are compatible with from their versions.
flags="-s -w -X $about.gitVersion=$version -X $about.gitMajor=1 -X $about.gitMinor=$minor"
mkdir -p "$bin"
go build -C hack/controlplane -trimpath -ldflags="$flags" -o "$bin/" k8s.io/kubernetes/cmd/{kubeadm,kube-apiserver,kube-controller-manager,kube-scheduler}
go build -C hack/controlplane -trimpath -ldflags='-s -w' -o "$bin/etcd" go.etcd.io/etcd/server/v3
PODRUN_E2E=1 PODRUN_E2E_KUBEADM=$bin PODRUN_E2E_CONTAINERD=embedded go test ./e2e -count=1 -timeout 20m -v -run '^TestKubeadm$' ${FLAGS-}
