"""obstore, the object stores of Rust for Python: the XML API, with bucket names percent-encoded. It
asks the metadata server when it has no key, so it gets one, which says that there is no OAuth.

What it cannot do here: signed URLs, for which the key is none."""

import json

from peer import LARGE, SMALL, Peer


class Obstore(Peer):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import obstore

        cls.obstore = obstore

    def setUp(self):
        super().setUp()
        from obstore.store import GCSStore

        self.emulator.put(self.bucket_name, "first", b"x")
        key = {
            "private_key": "",
            "private_key_id": "",
            "client_email": "",
            "disable_oauth": True,
            "gcs_base_url": self.endpoint,
        }
        self.key = json.dumps(key)
        self.store = GCSStore(self.bucket_name, service_account_key=self.key)
        self.store.delete("first")

    def test_put_and_get(self):
        result = self.store.put("a/b c", SMALL)
        self.assertTrue(result["e_tag"])
        self.assertEqual(bytes(self.store.get("a/b c").bytes()), SMALL)
        meta = self.store.head("a/b c")
        self.assertEqual((meta["path"], meta["size"]), ("a/b c", len(SMALL)))
        self.store.put("empty", b"")
        self.assertEqual(bytes(self.store.get("empty").bytes()), b"")

    def test_ranges(self):
        self.store.put("name", SMALL)
        self.assertEqual(bytes(self.store.get_range("name", start=5, length=20)), SMALL[5:25])
        pieces = self.store.get_ranges("name", starts=[0, 500, 990], lengths=[1, 100, 10])
        self.assertEqual([bytes(piece) for piece in pieces], [SMALL[:1], SMALL[500:600], SMALL[990:]])
        part = self.store.get("name", options={"range": {"suffix": 7}})
        self.assertEqual(bytes(part.bytes()), SMALL[-7:])

    def test_a_hierarchical_bucket(self):
        from obstore.store import GCSStore

        bucket = self.bucket_name + "-tree"
        self.emulator.create_hierarchical(bucket)
        self.emulator.create_folder(bucket, "empty/")
        store = GCSStore(bucket, service_account_key=self.key)
        store.put("a/b/name", SMALL)
        store.put("a/large", LARGE, use_multipart=True, chunk_size=5 * 1024 * 1024)
        self.emulator.rename_folder(bucket, "a/", "empty/new/")
        listed = store.list_with_delimiter("empty/new/")
        self.assertEqual(listed["common_prefixes"], ["empty/new/b"])
        self.assertEqual([each["path"] for each in listed["objects"]], ["empty/new/large"])
        store.rename("empty/new/large", "large")
        self.assertEqual(bytes(store.get("large").bytes()), LARGE)
        self.assertEqual([each["path"] for each in store.list().collect()], ["empty/new/b/name", "large"])

    def test_multipart_upload(self):
        self.store.put("large", LARGE, use_multipart=True, chunk_size=5 * 1024 * 1024, max_concurrency=4)
        self.assertEqual(bytes(self.store.get("large").bytes()), LARGE)
        with self.obstore.open_writer(self.store, "stream", buffer_size=6 * 1024 * 1024) as writer:
            for at in range(0, len(LARGE), 1_000_000):
                writer.write(LARGE[at : at + 1_000_000])
        self.assertEqual(bytes(self.store.get("stream").bytes()), LARGE)

    def test_attributes(self):
        self.store.put(
            "name", SMALL, attributes={"Content-Type": "text/x", "Cache-Control": "no-store", "key": "value"}
        )
        attributes = self.store.get("name").attributes
        self.assertEqual(attributes["Content-Type"], "text/x")
        self.assertEqual(attributes["Cache-Control"], "no-store")
        self.assertEqual(attributes["key"], "value")

    def test_listing(self):
        names = sorted(f"folder/{i}" for i in range(1200)) + ["other", "x y&<z>"]
        for name in names:
            self.store.put(name, b"")
        listed = [meta["path"] for page in self.store.list() for meta in page]
        self.assertEqual(listed, names)
        result = self.store.list_with_delimiter()
        self.assertEqual(list(result["common_prefixes"]), ["folder"])
        self.assertEqual([meta["path"] for meta in result["objects"]], ["other", "x y&<z>"])
        offset = [meta["path"] for page in self.store.list(offset="folder/999") for meta in page]
        self.assertEqual(offset, ["other", "x y&<z>"])

    def test_copy_rename_and_delete(self):
        self.store.put("a", SMALL)
        self.store.copy("a", "b")
        self.store.rename("b", "c/d")
        self.assertEqual(bytes(self.store.get("c/d").bytes()), SMALL)
        self.store.delete(["a", "c/d"])
        self.assertEqual([meta["path"] for page in self.store.list() for meta in page], [])

    def test_conditions(self):
        from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError

        first = self.store.put("name", SMALL, mode="create")
        with self.assertRaises(AlreadyExistsError):
            self.store.put("name", SMALL, mode="create")
        with self.assertRaises(AlreadyExistsError):
            self.store.copy("name", "name", overwrite=False)
        second = self.store.put("name", LARGE[:10], mode=first)
        self.assertNotEqual(first["version"], second["version"])
        with self.assertRaises(PreconditionError):
            self.store.put("name", SMALL, mode=first)
        with self.assertRaises(NotModifiedError):
            self.store.get("name", options={"if_none_match": second["e_tag"]})
        with self.assertRaises(PreconditionError):
            self.store.get("name", options={"if_match": first["e_tag"]})
        with self.assertRaises(FileNotFoundError):
            self.store.get("none")
