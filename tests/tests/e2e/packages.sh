# The shell of the page of packages, on a machine of its own and nowhere else.
grep -qz '^container=satcast-test$' /proc/1/environ
cd /srv/shared
[ ! -e /tmp/variables ] || . /tmp/variables
keep_variables() { declare -p VERSION NEW KEY MADE STREAM > /tmp/variables 2> /dev/null || true; }

# It is not installed, and the shell is root's.
sudo() {
    if [ "$1" = -u ]; then setpriv --reuid "$2" --regid "$2" --clear-groups -- "${@:3}"; else "$@"; fi
}
satcast() { sudo -u satcast /usr/bin/satcast --config /etc/satcast/satcast.toml "$@"; }
ready() { until curl -fs http://127.0.0.1:8080/readyz > /tmp/readyz; do sleep 0.1; done; }
encoder() {
    setsid ffmpeg -nostdin -loglevel error -re -f lavfi -i testsrc2=size=160x120:rate=30 -t 30 -c:v libx264 -preset ultrafast \
        -g 30 -f flv "$1" > /tmp/encoder.log 2>&1 &
}

# No engine is installed: this does by hand what one does with the layout of an image.
podman() {
    local layout=/srv/shared/layout root=/srv/shared/image
    blob() { printf '%s/blobs/%s' "$layout" "${1/://}"; }
    case "$1" in
        load)
            mkdir "$layout" "$root"
            tar -xf "$3" -C "$layout"
            local manifest layer
            manifest=$(blob "$(jq -r '.manifests[0].digest' "$layout/index.json")")
            for layer in "$layout"/blobs/sha256/*; do
                sha256sum --check --quiet <<< "$(basename "$layer")  $layer"
            done
            for layer in $(jq -r '.layers[].digest' "$manifest"); do tar -xzf "$(blob "$layer")" -C "$root"; done
            # The digests of the layers as they are unpacked.
            diff <(for layer in $(jq -r '.layers[].digest' "$manifest"); do
                zcat "$(blob "$layer")" | sha256sum | sed 's/^\([0-9a-f]*\).*/sha256:\1/'
            done) <(jq -r '.rootfs.diff_ids[]' "$(blob "$(jq -r .config.digest "$manifest")")")
            mkdir "$root/proc" "$root/dev"
            mount -t proc proc "$root/proc"
            mount -t tmpfs tmpfs "$root/dev"
            mknod -m 666 "$root/dev/null" c 1 3
            mknod -m 666 "$root/dev/urandom" c 1 9
            ;;
        run)
            local word previous= settings=()
            for word in "$@"; do
                [ "$previous" != --env ] || settings+=("$word")
                previous=$word
            done
            printf '%s\n' "${settings[@]}" > /tmp/settings
            inside run > /tmp/image.log 2>&1 < /dev/null &
            ready
            ;;
        exec) inside "${@:4}" ;;
    esac
}
# Starts the image's program with the settings of `run` and of the image, as its user.
inside() {
    local settings config
    config=$(blob "$(jq -r .config.digest "$(blob "$(jq -r '.manifests[0].digest' "$layout/index.json")")")")
    mapfile -t settings < <(cat /tmp/settings; jq -r '.config.Env[]' "$config")
    env -i "${settings[@]}" /usr/sbin/chroot "--userspec=$(jq -r .config.User "$config")" "$root" \
        "$(jq -r '.config.Entrypoint[0]' "$config")" "$@"
}
